"""clang_tidy: an aspect that runs clang-tidy on the sources of C++ targets, as cached Bazel actions.

    bazel build //... --config=tidy

Tests are left out: they cost as much as the code and repay it least.
"""

def _clang_tidy_impl(target, ctx):
    if CcInfo not in target or ctx.rule.kind not in ["cc_library", "cc_binary"] or target.label.workspace_name:
        return [OutputGroupInfo(clang_tidy = depset())]
    context = target[CcInfo].compilation_context
    flags = ["-std=c++17", "-Wthread-safety", "-Wno-unknown-warning-option"]
    flags += ["-D" + d for d in context.defines.to_list() + context.local_defines.to_list()]
    for option, folders in [
        ("-iquote", context.quote_includes),
        ("-I", context.includes),
        ("-isystem", context.system_includes),
    ]:
        for folder in folders.to_list():
            flags += [option, folder]
    flags += getattr(ctx.rule.attr, "copts", [])

    outputs = []
    for source in getattr(ctx.rule.files, "srcs", []):
        # Generated code is not ours to mend.
        if source.extension != "cc" or not source.is_source:
            continue
        output = ctx.actions.declare_file("%s.%s.clang_tidy" % (source.basename, target.label.name))
        ctx.actions.run_shell(
            command = """
out="$1"; shift
# Only findings are of interest, not the count of warnings in the libraries' headers.
if ! clang-tidy --quiet --config-file=.clang-tidy "$@" > "$out" 2> "$out.err"; then
  cat "$out" "$out.err" | grep -v 'warnings generated' >&2
  exit 1
fi
""",
            arguments = [output.path, source.path, "--"] + flags,
            inputs = depset(
                [source, ctx.file._config] + ctx.rule.files.srcs,
                transitive = [context.headers],
            ),
            outputs = [output],
            mnemonic = "ClangTidy",
            progress_message = "clang-tidy %s" % source.short_path,
            use_default_shell_env = True,
        )
        outputs.append(output)
    return [OutputGroupInfo(clang_tidy = depset(outputs))]

clang_tidy = aspect(
    implementation = _clang_tidy_impl,
    attrs = {"_config": attr.label(default = "//:.clang-tidy", allow_single_file = True)},
)
