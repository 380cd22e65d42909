package attempt

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Birth is what the process was born with, seen before anything of ours could change it.
type Birth struct {
	FDs []string // inherited descriptors above 2, as number=target
	Env []string
}

// TakeBirth must be the first call of main. Descriptors with close-on-exec cannot have been inherited: those are the
// runtime's own (epoll, cpu.max of the cgroup).
func TakeBirth() Birth {
	b := Birth{Env: os.Environ()}
	names, _ := readDirNames("/proc/self/fd")
	for _, n := range names {
		fd, err := strconv.Atoi(n)
		if err != nil || fd <= 2 {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		to, _ := os.Readlink("/proc/self/fd/" + n)
		b.FDs = append(b.FDs, n+"="+to)
	}
	return b
}

func readDirNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

func bornWith() []Attempt {
	const door = "inherit-fd"
	a := []Attempt{
		{door + "/above-2", door, "use a descriptor above 2 that was open at the start", Varies, func(t *Target) Outcome {
			if len(t.Born.FDs) > 0 {
				return opened("inherited %s", strings.Join(t.Born.FDs, ", "))
			}
			return closed("nothing above descriptor 2")
		}},
		{door + "/cwd", door, "climb out of a working directory that lies outside the root", Varies, func(t *Target) Outcome {
			buf := make([]byte, unix.PathMax)
			n, err := unix.Getcwd(buf)
			if err != nil {
				return judge("getcwd", err)
			}
			if dir := string(buf[:n-1]); !strings.HasPrefix(dir, "/") {
				return opened("working directory is %s", dir)
			}
			return closed("the working directory lies in the root")
		}},
	}
	for fd := range 3 {
		a = append(a, Attempt{fmt.Sprintf("%s/stdio-%d", door, fd), door,
			fmt.Sprintf("find a file, a folder, a socket or a foreign terminal on descriptor %d", fd), Varies,
			func(*Target) Outcome { return stdio(fd) }})
	}
	return a
}

func stdio(fd int) Outcome {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return absent("fstat: %v", err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		return closed("a pipe")
	case unix.S_IFCHR:
		var null unix.Stat_t
		if unix.Stat("/dev/null", &null) == nil && null.Rdev == st.Rdev {
			return closed("/dev/null")
		}
		names, _ := readDirNames("/dev/pts")
		for _, n := range names {
			var pts unix.Stat_t
			if unix.Stat("/dev/pts/"+n, &pts) == nil && pts.Rdev == st.Rdev && pts.Dev == st.Dev {
				return closed("a terminal of this view's own devpts")
			}
		}
		return opened("a device of another view, %d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	}
	to, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	return opened("%s, mode %o", to, st.Mode&unix.S_IFMT)
}

// loaders are variables that make some pinned program load code or run a program.
var loaders = []string{
	"BASH_ENV", "ENV", "NODE_OPTIONS", "NODE_PATH", "BUN_OPTIONS", "PYTHONSTARTUP", "PYTHONPATH", "PYTHONHOME", "PERL5OPT", "PERL5LIB",
	"RUBYOPT", "RUBYLIB", "JAVA_TOOL_OPTIONS", "GCONV_PATH", "LOCPATH", "NLSPATH", "OPENSSL_CONF", "GLIBC_TUNABLES", "MALLOC_TRACE",
	"PAGER", "EDITOR", "VISUAL", "BROWSER", "LESSOPEN", "RIPGREP_CONFIG_PATH", "PROMPT_COMMAND", "SHELLOPTS",
}

func loadsCode(name string) bool {
	return strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "GIT_") || slices.Contains(loaders, name)
}

func envAttempts() []Attempt {
	find := func(t *Target, bad func(name, value string) bool) Outcome {
		var found []string
		for _, kv := range t.Born.Env {
			if name, value, _ := strings.Cut(kv, "="); bad(name, value) {
				found = append(found, name)
			}
		}
		if len(found) > 0 {
			return opened("set at the start: %s", strings.Join(found, " "))
		}
		return closed("none of them is set")
	}
	return []Attempt{
		{"inherit-env/secret", "inherit-env", "find a planted secret in the environment", Opens, func(t *Target) Outcome {
			if t.SecretValue == "" {
				return impossible("no bait")
			}
			return find(t, func(name, value string) bool {
				return slices.Contains(t.SecretEnv, name) || strings.Contains(value, t.SecretValue)
			})
		}},
		{"inherit-env/socket", "inherit-env", "find the way to a daemon in the environment", Opens, func(t *Target) Outcome {
			if len(t.SocketEnv) == 0 {
				return impossible("no bait")
			}
			// By value: a manifest may set one of these names to a place of the agent's own.
			return find(t, func(name, value string) bool { return slices.Contains(t.SocketEnv, name+"="+value) })
		}},
		{"inherit-env/auxv", "inherit-env", "find a planted secret in /proc/self/environ", Opens, func(t *Target) Outcome {
			if t.SecretValue == "" {
				return impossible("no bait")
			}
			raw, err := os.ReadFile("/proc/self/environ")
			if err != nil {
				return judge("read /proc/self/environ", err)
			}
			if strings.Contains(string(raw), t.SecretValue) {
				return opened("/proc/self/environ holds it")
			}
			return closed("/proc/self/environ does not hold it")
		}},
		{"exec-env/inherited", "exec-env", "find a variable in the environment that makes programs load code", Opens, func(t *Target) Outcome {
			return find(t, func(name, _ string) bool { return loadsCode(name) })
		}},
	}
}
