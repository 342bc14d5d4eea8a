"""cuda_configure: finds an installed CUDA toolkit, so that --config=cuda can say what it found.

The toolkit is looked for in $CUDA_PATH, by default /usr/local/cuda. Its label always exists; without
--config=cuda nothing depends on it, and a machine without a toolkit builds and tests everything else.
"""

def _cuda_configure_impl(ctx):
    toolkit = ctx.os.environ.get("CUDA_PATH", "") or "/usr/local/cuda"
    if ctx.path(toolkit + "/bin/nvcc").exists:
        message = ("The CUDA backend is not built yet: this version of Paceline has the CPU backend only " +
                   "(a CUDA toolkit is there, in %s). Build without --config=cuda." % toolkit)
    else:
        message = ("--config=cuda needs a CUDA toolkit, and there is no bin/nvcc in %s. " % toolkit +
                   "Install one, or say where it is (--repo_env=CUDA_PATH=/path), or build without " +
                   "--config=cuda. Besides, the CUDA backend is not built yet.")
    ctx.file("BUILD", """
load("@paceline//third_party/cuda:unavailable.bzl", "unavailable")

unavailable(
    name = "cuda",
    message = %r,
    tags = ["manual"],
    visibility = ["//visibility:public"],
)
""" % message)

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    environ = ["CUDA_PATH"],
    local = True,
)
