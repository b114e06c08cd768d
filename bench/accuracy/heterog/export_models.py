"""Makes the tables of this folder: exports the models of definitions.py, summarizes their graphs.

    python export_models.py BUILD [FOLDER]

BUILD holds bench_summarize_graph; graphs that FOLDER (default BUILD/heterog) holds already are kept.
Needs the packages of requirements.txt and the exporter on PYTHONPATH.
"""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
MODELS = (
    "vgg19",
    "resnet200",
    "inception_v3",
    "mobilenet_v2",
    "nasnet_mobile",
    "transformer_base",
    "bert_large",
    "xlnet_large",
)


def export(model, folder):
    """The model's graph, without weights."""
    target = folder / f"{model}.motley"
    if not target.exists():
        source = f"{HERE / 'definitions.py'}:{model}"
        command = [sys.executable, "-m", "motley.export", source, "-o", target, "--graph-only"]
        subprocess.run(command, check=True)
    return target


def main():
    build = pathlib.Path(sys.argv[1])
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else build / "heterog"
    folder.mkdir(parents=True, exist_ok=True)
    graphs = [export(model, folder) for model in MODELS]
    subprocess.run([build / "bench_summarize_graph", HERE, *graphs], check=True)


if __name__ == "__main__":
    main()
