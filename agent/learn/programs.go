package learn

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// routable are programs that an agent starts to have them do something else: shells, interpreters, version control,
// package managers, the search tools that agents bring commands to. What they do belongs into a sandbox of the
// bash-server. Filters that a script runs by the dozen (grep, sed, awk) are not among them: they start nothing by themselves.
var routable = []string{
	"sh", "bash", "dash", "zsh", "fish", "ksh", "mksh", "ash", "tcsh", "csh", "pwsh", "nu", "xonsh",
	"python", "pypy", "perl", "ruby", "irb", "node", "nodejs", "deno", "bun", "php", "lua", "luajit", "tclsh", "guile", "expect", "java", "jshell", "Rscript",
	"git", "gh", "rg", "ssh", "make", "gmake", "npm", "npx", "yarn", "pnpm", "pip", "uv", "uvx", "cargo", "go",
	"docker", "podman", "bwrap", "tmux", "screen", "gdb", "strace", "script", "nsenter", "unshare", "systemd-run",
	"vi", "vim", "vim.basic", "vim.nox", "vim.tiny", "vim.gtk3", "nvim", "emacs",
}

// versioned strips what distributions put behind a name: python3.11, perl5.36.0, perl5.36-x86_64-linux-gnu, ruby3.1, lua5.4.
var versioned = regexp.MustCompile(`[-.]?[0-9][-.0-9]*(-[a-z0-9_]+-linux-[a-z0-9]+)?$|[-.]+$`)

// Routable says whether a program of that name is one whose work belongs into a sandbox.
func Routable(name string) bool {
	base := path.Base(name)
	return slices.Contains(routable, base) || slices.Contains(routable, versioned.ReplaceAllString(base, ""))
}

// multicall are binaries that are many programs in one: who may start one may start them all.
var multicall = []string{"busybox", "toybox", "coreutils", "sbase-box", "ubase-box", "uutils"}

func multi(name string) bool {
	base := path.Base(name)
	base = strings.TrimSuffix(base, ".static")
	return slices.Contains(multicall, base)
}

// Loader says whether a file is a dynamic loader by its name. Executed by itself it starts any file that can be mapped.
func Loader(name string) bool {
	base := path.Base(name)
	return strings.HasPrefix(base, "ld-linux") || strings.HasPrefix(base, "ld-musl-") || strings.HasPrefix(base, "ld-2.") || base == "ld.so" || base == "ld64.so.1" || base == "ld64.so.2"
}
