package attempt

import (
	"golang.org/x/sys/unix"
)

// cores changes RLIMIT_CORE. Lowering it opens the door as well as raising it: a piped handler runs at 0 and not at 1.
func cores() []Attempt {
	const door = "core-helper"
	inf := ^uint64(0)
	row := func(id, what string, control Control, calls func(t *Target) []call) Attempt {
		return Attempt{door + "/" + id, door, what, control, func(t *Target) Outcome {
			_, err := t.forked(calls(t)...)
			return judgeForked(what, err)
		}}
	}
	return []Attempt{
		{door + "/limit", door, "find RLIMIT_CORE at anything but 1", Varies, func(*Target) Outcome {
			var r unix.Rlimit
			if err := unix.Getrlimit(unix.RLIMIT_CORE, &r); err != nil {
				return judge("getrlimit", err)
			}
			if r.Cur == 1 && r.Max == 1 {
				return closed("RLIMIT_CORE is 1/1")
			}
			return opened("RLIMIT_CORE is %d/%d", r.Cur, r.Max)
		}},
		row("raise", "prlimit64 RLIMIT_CORE to no limit", Varies, func(t *Target) []call {
			return []call{sys(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, t.words(8, inf, inf), 0)}
		}),
		row("raise-old", "setrlimit RLIMIT_CORE to no limit", Varies, func(t *Target) []call {
			return []call{sys(unix.SYS_SETRLIMIT, unix.RLIMIT_CORE, t.words(8, inf, inf))}
		}),
		row("zero", "prlimit64 RLIMIT_CORE to 0, at which piped handlers run", Opens, func(t *Target) []call {
			return []call{sys(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, t.words(8, 0, 0), 0)}
		}),
		row("zero-old", "setrlimit RLIMIT_CORE to 0", Opens, func(t *Target) []call {
			return []call{sys(unix.SYS_SETRLIMIT, unix.RLIMIT_CORE, t.words(8, 0, 0))}
		}),
		row("zero-own-pid", "prlimit64 by one's own pid", Opens, func(t *Target) []call {
			return []call{sys(unix.SYS_GETPID), sys(unix.SYS_PRLIMIT64, previous, unix.RLIMIT_CORE, t.words(8, 0, 0), 0)}
		}),
		row("high-bits", "setrlimit with bits above 32 set in the resource", Opens, func(t *Target) []call {
			return []call{sys(unix.SYS_SETRLIMIT, 1<<32|unix.RLIMIT_CORE, t.words(8, 0, 0))}
		}),
	}
}
