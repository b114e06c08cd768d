#include "motley/report/page/page_parts.h"

namespace motley::report {

const std::string_view kPictureStyle = R"css(
:root{--bg:#fff;--card:#fff;--ink:#1a1f26;--soft:#5a6472;--line:#d5dae1;--rail:#eef1f5;--work:#2f6fb3;
--work2:#5d96d1;--back:#1d7d6d;--on:#fff;--wait:#fbe3dc;--hatch:#c8401f;--onwait:#7c210b;--exch:#b47a00;--limit:#b3261e;--accent:#2f6fb3}
@media (prefers-color-scheme:dark){:root{--bg:#12161b;--card:#181d24;--ink:#e6eaf0;--soft:#9aa6b5;--line:#313a46;
--rail:#232a33;--work:#4b8fd6;--work2:#2f68a5;--back:#1f8a77;--on:#fff;--wait:#40221b;--hatch:#f0805f;--onwait:#ffc3b1;--exch:#e0a72e;--limit:#ff8a80}}
svg text{font:12px system-ui,"DejaVu Sans",sans-serif;fill:var(--ink)}
svg .soft{fill:var(--soft)}svg .tiny{font-size:8px}svg .head{font-size:14px;font-weight:600}svg .name{font-weight:600}
svg .halo{paint-order:stroke;stroke:var(--bg);stroke-width:4px;stroke-linejoin:round}
svg .mid{text-anchor:middle}svg .end{text-anchor:end}
svg .on-work{fill:var(--on)}svg .on-wait{fill:var(--onwait);font-weight:600;paint-order:stroke;stroke:var(--wait);stroke-width:4px}
.ground{fill:var(--bg)}.rail{fill:var(--rail)}.work{fill:var(--work)}.back{fill:var(--back)}.two{fill:var(--work2)}
.wait{fill:url(#hatch);stroke:var(--hatch);stroke-width:.6}.exchange{fill:var(--exch)}
.limit{stroke:var(--limit);stroke-width:3}.dashed{stroke-width:1.5;stroke-dasharray:6 4}
.grid,.axis{stroke:var(--line);stroke-width:1}.arrow{fill:none;stroke:var(--hatch);stroke-width:1.4}
.curve{fill:none;stroke:var(--work);stroke-width:1.6;stroke-linejoin:round}.dot{fill:var(--work)}
.hatch-bg{fill:var(--wait)}.hatch-line{stroke:var(--hatch);stroke-width:1.4}
.part{stroke:var(--bg);stroke-width:.8}
.p0{fill:#2f6fb3}.p1{fill:url(#q1)}.p2{fill:#1d8a78}.p3{fill:url(#q3)}.p4{fill:#7f55a8}.p5{fill:url(#q5)}.p6{fill:#b0452f}
.p7{fill:url(#q7)}.p8{fill:#6b7480}.p9{fill:url(#q9)}
)css";

const std::string_view kPageStyle = R"css(
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,"DejaVu Sans",sans-serif}
main{max-width:948px;margin:0 auto;padding:20px 24px 48px}
h1{font-size:24px;margin:0 0 8px;overflow-wrap:anywhere}h2{font-size:18px;margin:0 0 4px}
p{margin:0 0 10px;max-width:75ch;overflow-wrap:anywhere}
.verdict{font-size:18px}.remark{color:var(--soft)}
.state{display:inline-block;border:1px solid var(--line);border-radius:4px;padding:1px 8px;margin:0 0 8px;color:var(--soft)}
.state.failed,.state.ended{border-color:var(--limit);color:var(--limit)}.state.running{border-color:var(--accent);color:var(--accent)}
section{border-top:1px solid var(--line);padding:18px 0 8px;margin-top:14px}section:first-child{border:0;padding-top:0;margin:0}
figure{margin:10px 0;overflow-x:auto}figure svg{display:block;max-width:100%;height:auto}
figure.large svg{max-width:none;width:220%;cursor:zoom-out}figure svg{cursor:zoom-in}
.narrow{display:none}
.scroll{overflow-x:auto}pre{background:var(--rail);padding:10px;border-radius:4px;font-size:13px}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:3px 14px 3px 0;border-bottom:1px solid var(--line);vertical-align:top}
td:last-child:not(.n){min-width:200px}td.n{text-align:right;white-space:nowrap}th{color:var(--soft);font-weight:600}
summary{cursor:pointer;color:var(--soft);font-size:13px;margin:4px 0}
.legend{font-size:13px;color:var(--soft)}.key{display:inline-flex;align-items:center;gap:6px;margin-right:16px}
@media (max-width:640px){.wide{display:none}.narrow{display:block}main{padding:14px 16px 36px}h1{font-size:20px}.verdict{font-size:16px}}
@media print{:root{--bg:#fff;--card:#fff;--ink:#000;--soft:#444;--line:#bbb;--rail:#eee;--wait:#fff;--hatch:#a03010;--onwait:#5c1606}
body{-webkit-print-color-adjust:exact;print-color-adjust:exact}
.wide{display:block}.narrow{display:none}section{break-inside:avoid}figure.wide svg{width:100%}summary{display:none}main{max-width:none;padding:0}
.scroll{overflow:visible}pre{white-space:pre-wrap;overflow-wrap:anywhere}}
)css";

const std::string_view kPatterns =
    R"html(<defs>
<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="7" height="7" class="hatch-bg"/><line x1="0" y1="0" x2="0" y2="7" class="hatch-line"/></pattern>
<pattern id="q1" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="#8fb8e0"/><path d="M0 3h6" stroke="#2f6fb3"/></pattern>
<pattern id="q3" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="#9ad6ca"/><path d="M3 0v6" stroke="#1d8a78"/></pattern>
<pattern id="q5" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" fill="#cdb4e4"/><path d="M3 0v6" stroke="#7f55a8"/></pattern>
<pattern id="q7" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><rect width="6" height="6" fill="#edb3a3"/><path d="M3 0v6" stroke="#b0452f"/></pattern>
<pattern id="q9" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="#c9cfd6"/><circle cx="3" cy="3" r="1.3" fill="#4d5560"/></pattern>
</defs>)html";

const std::string_view kZoomScript = R"js(
document.addEventListener('click',e=>{const f=e.target.closest&&e.target.closest('figure');if(f)f.classList.toggle('large')});
)js";

// Replaces changed sections, each with the id of the one before; keeps the reader's view.
const std::string_view kLiveScript = R"js(
const page=document.getElementById('page');
const events=new EventSource('events');
events.addEventListener('sections',e=>{
 for(const [id,html,before] of JSON.parse(e.data)){
  let s=document.getElementById(id);const p=document.getElementById(before);
  if(!s){s=document.createElement('section');s.id=id;if(p)p.after(s);else page.append(s)}
  const open=[...s.querySelectorAll('details')].map(d=>d.open),large=!!s.querySelector('figure.large');
  if(html==='')s.remove();else s.innerHTML=html;
  s.querySelectorAll('details').forEach((d,i)=>{if(i<open.length)d.open=open[i]});
  if(large)s.querySelectorAll('figure').forEach(f=>f.classList.add('large'))}
 const state=page.querySelector('.state').textContent;
 document.title=document.title.replace(/: [a-z]+$/,': '+state);
});
events.addEventListener('end',()=>events.close());
)js";

}  // namespace motley::report
