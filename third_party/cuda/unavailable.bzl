"""unavailable: a library that cannot be had; whoever builds with it is told why."""

def _unavailable_impl(ctx):
    fail(ctx.attr.message)

unavailable = rule(
    implementation = _unavailable_impl,
    attrs = {"message": attr.string(mandatory = True)},
    provides = [CcInfo],
)
