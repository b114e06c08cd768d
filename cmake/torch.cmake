# motley-worker: the only part that sees PyTorch. TORCH_ROOT is the folder of the installed torch
# package. find_package(Torch) is not used: it wants a CUDA toolkit.
set(TORCH_ROOT "" CACHE PATH "folder of the installed torch package")
if(NOT TORCH_ROOT)
  find_package(Python3 COMPONENTS Interpreter REQUIRED)
  execute_process(COMMAND ${Python3_EXECUTABLE} -c
    "import importlib.util as u,os;print(os.path.dirname(u.find_spec('torch').origin))"
    OUTPUT_VARIABLE TORCH_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
file(STRINGS ${TORCH_ROOT}/version.py version_line REGEX "^__version__")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" TORCH_VERSION "${version_line}")
message(STATUS "PyTorch ${TORCH_VERSION} in ${TORCH_ROOT}")

add_library(torch_c10 SHARED IMPORTED)
set_target_properties(torch_c10 PROPERTIES IMPORTED_LOCATION ${TORCH_ROOT}/lib/libc10.so)
add_library(torch_cpu SHARED IMPORTED)
set_target_properties(torch_cpu PROPERTIES IMPORTED_LOCATION ${TORCH_ROOT}/lib/libtorch_cpu.so)
target_include_directories(torch_cpu SYSTEM INTERFACE ${TORCH_ROOT}/include ${TORCH_ROOT}/include/torch/csrc/api/include)
target_compile_definitions(torch_cpu INTERFACE USE_DISTRIBUTED USE_C10D_GLOO USE_RPC USE_TENSORPIPE)
target_link_libraries(torch_cpu INTERFACE torch_c10)
target_compile_definitions(torch_cpu INTERFACE FMT_HEADER_ONLY=1)  # its headers include a newer fmt of their own

motley_folder(run_torch PATH motley/run/torch LESS cuda OWN_HEADERS USES base graph cluster program trace data run LIBRARIES torch_cpu ${CMAKE_DL_LIBS} TEST_USES synth)
set(torch_include ${TORCH_ROOT}/include)
set(torch_headers <ATen/core/Tensor.h> <ATen/core/dispatch/Dispatcher.h>)
target_precompile_headers(motley_run_torch PRIVATE ${MOTLEY_HEADERS} ${torch_headers})
if(TARGET run_torch_test)
  target_precompile_headers(run_torch_test PRIVATE ${MOTLEY_TEST_HEADERS} ${torch_headers})
endif()
# at::parallel_for is a template: it is parallel where it is compiled with OpenMP. The library is
# PyTorch's own, so that there is one pool of threads.
set_source_files_properties(motley/run/torch/operators/batch_norm.cc motley/run/torch/operators/distributions.cc
  motley/run/torch/operators/dropout.cc PROPERTIES
  COMPILE_OPTIONS -fopenmp SKIP_PRECOMPILE_HEADERS ON)
# Loops over elements are to become vectors, square roots too. Nothing here may change a bit.
set_source_files_properties(motley/run/torch/operators/element_update.cc PROPERTIES
  COMPILE_OPTIONS "-fopenmp;-O3;-fno-math-errno;-fno-trapping-math;-ffp-contract=off" SKIP_PRECOMPILE_HEADERS ON)
target_link_libraries(motley_run_torch PUBLIC ${TORCH_ROOT}/lib/libgomp.so.1)
add_executable(motley-worker motley/run/torch/worker_main.cc)
target_link_libraries(motley-worker motley_run_torch)
add_dependencies(product motley-worker)
# Installed it lies in the package motley, beside the package torch.
set_target_properties(motley-worker PROPERTIES BUILD_RPATH "${TORCH_ROOT}/lib" INSTALL_RPATH "$ORIGIN/../../torch/lib")
install(TARGETS motley-worker RUNTIME DESTINATION motley/bin COMPONENT worker)
if(TARGET run_torch_test)
  set_target_properties(run_torch_test PROPERTIES BUILD_RPATH "${TORCH_ROOT}/lib")
endif()

# NCCL, kernels and CUDA memory figures: a library of its own, loaded when a CUDA device is asked for. It
# compiles with the headers of the wheels alone; no toolkit, no link against nccl.
get_filename_component(site_packages ${TORCH_ROOT} DIRECTORY)
file(GLOB nvidia_includes ${site_packages}/nvidia/nccl/include ${site_packages}/nvidia/cu13/include)
file(GLOB cuda_sources CONFIGURE_DEPENDS motley/run/torch/cuda/*.cc)

# The headers that NVRTC compiles on GPUs, as texts in the library. Theirs is the folder of ours.
set(kernel_headers philox element_place element_types portable_functions random_numbers random_kernels)
list(TRANSFORM kernel_headers REPLACE "(.+)" "motley/run/torch/operators/\\1.h")
function(motley_kernel_texts output)
  set(texts "")
  foreach(header IN LISTS kernel_headers)
    file(READ ${header} text)
    string(APPEND texts "      {\"${header}\", R\"motley(${text})motley\"},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[#include "motley/run/torch/cuda/kernel_texts.h"
namespace motley::run {
const std::vector<KernelText>& kernel_texts() {
  static const std::vector<KernelText> texts = {
@texts@  };
  return texts;
}
}  // namespace motley::run
]])
endfunction()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernel_headers})

# Why motley_cuda cannot be built here; empty when it can. A compiler may find headers of a toolkit
# in its own folders (distributions link them into /usr/local/include), of whatever version: what is
# included must lie in the wheels.
function(motley_cuda_fault result)
  set(${result} "" PARENT_SCOPE)
  if(NOT EXISTS ${TORCH_ROOT}/lib/libtorch_cuda.so)
    set(${result} "PyTorch ${TORCH_VERSION} in ${TORCH_ROOT} is built without CUDA" PARENT_SCOPE)
    return()
  endif()
  set(includes "")
  foreach(folder IN LISTS nvidia_includes ITEMS ${TORCH_ROOT}/include ${TORCH_ROOT}/include/torch/csrc/api/include)
    list(APPEND includes -isystem ${folder})
  endforeach()
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -M -fno-canonical-system-headers -DUSE_DISTRIBUTED -DUSE_C10D_NCCL -I${PROJECT_SOURCE_DIR} ${includes} ${cuda_sources}
    OUTPUT_VARIABLE headers ERROR_VARIABLE errors RESULT_VARIABLE status WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  if(status)
    string(REGEX MATCH "error: ([^\n]*)" line "${errors}")
    string(REPLACE "\"" "'" line "${CMAKE_MATCH_1}")
    set(${result} "${line} (nvidia-cuda-crt and nvidia-cuda-cccl of PyTorch's CUDA, beside PyTorch, have what its wheels lack)" PARENT_SCOPE)
    return()
  endif()
  string(REGEX MATCHALL "[^ \n\\]+" headers "${headers}")
  foreach(header IN LISTS headers)
    string(FIND "${header}" "${site_packages}/" in_wheels)
    string(FIND "${header}" "${PROJECT_SOURCE_DIR}/" ours)
    if(in_wheels EQUAL 0 OR ours EQUAL 0 OR NOT header MATCHES "^/")
      continue()
    endif()
    file(REAL_PATH ${header} path)
    if(path MATCHES "/cuda[^/]*/|/nccl")
      set(${result} "${header} is of another CUDA than PyTorch's (nvidia-cuda-crt and nvidia-cuda-cccl of that, beside PyTorch, have what its wheels lack)" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# Asking takes seconds: again when PyTorch, its headers or the sources are others.
file(GLOB nvidia_added ${site_packages}/nvidia/cu13/include/crt/host_config.h ${site_packages}/nvidia/cu13/include/nv/target)
set(cuda_asked "${TORCH_ROOT};${TORCH_VERSION};${nvidia_includes};${nvidia_added};${cuda_sources}")
if(NOT "${MOTLEY_CUDA_ASKED}" STREQUAL "${cuda_asked}")
  motley_cuda_fault(fault)
  string(REPLACE ";" "," fault "${fault}")  # it becomes one word of a compiler's command line
  set(MOTLEY_CUDA_FAULT "${fault}" CACHE INTERNAL "why motley_cuda is left out")
  set(MOTLEY_CUDA_ASKED "${cuda_asked}" CACHE INTERNAL "what MOTLEY_CUDA_FAULT is about")
endif()
if(MOTLEY_CUDA_FAULT)
  message(STATUS "CUDA devices are left out: ${MOTLEY_CUDA_FAULT}")
else()
  message(STATUS "CUDA devices are built in, with the headers of ${site_packages}/nvidia")
  motley_kernel_texts(${PROJECT_BINARY_DIR}/kernel_texts.cc)
  add_library(motley_cuda SHARED ${cuda_sources} ${PROJECT_BINARY_DIR}/kernel_texts.cc motley/base/check.cc)
  target_include_directories(motley_cuda PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(motley_cuda SYSTEM PRIVATE ${nvidia_includes})
  target_compile_definitions(motley_cuda PRIVATE USE_C10D_NCCL)
  # PyTorch's own library loads NVRTC with itself in some releases, when it wants it in others.
  file(GLOB nvidia_libraries ${site_packages}/nvidia/cu13/lib/libnvrtc.so.[0-9]* ${site_packages}/nvidia/cu13/lib/libcudart.so.[0-9]*)
  target_link_libraries(motley_cuda PRIVATE torch_cpu fmt::fmt tl::expected
    ${TORCH_ROOT}/lib/libtorch_cuda.so ${TORCH_ROOT}/lib/libc10_cuda.so ${nvidia_libraries})
  target_link_options(motley_cuda PRIVATE -Wl,--allow-shlib-undefined)
  set_target_properties(motley_cuda PROPERTIES BUILD_RPATH "${TORCH_ROOT}/lib;${site_packages}/nvidia/cu13/lib" LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
    INSTALL_RPATH "$ORIGIN/../../torch/lib;$ORIGIN/../../nvidia/cu13/lib")
  install(TARGETS motley_cuda LIBRARY DESTINATION motley/bin COMPONENT worker)
  add_dependencies(product motley_cuda)
endif()

# What motley knows of the worker (control/survey/worker_build.h).
function(motley_say_build path folder)
  string(CONFIGURE [[{"torch": "@TORCH_VERSION@", "folder": "@folder@", "cuda_left_out": "@MOTLEY_CUDA_FAULT@"}
]] text @ONLY)
  file(GENERATE OUTPUT ${path} CONTENT "${text}")
endfunction()
motley_say_build(${PROJECT_BINARY_DIR}/motley-worker.json ${TORCH_ROOT})
motley_say_build(${PROJECT_BINARY_DIR}/installed/motley-worker.json ../../torch)
install(FILES ${PROJECT_BINARY_DIR}/installed/motley-worker.json DESTINATION motley/bin COMPONENT worker)
