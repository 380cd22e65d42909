package attempt

import (
	"os"

	"golang.org/x/sys/unix"
)

// execMemfd executes from memory, with every flag and both ways of naming the descriptor.
func execMemfd() []Attempt {
	const door = "exec-memfd"
	flags := []struct {
		name    string
		flags   int
		control Control
	}{
		{"plain", 0, Opens},
		{"cloexec", unix.MFD_CLOEXEC, Opens},
		{"allow-sealing", unix.MFD_ALLOW_SEALING, Opens},
		{"exec", unix.MFD_EXEC, Opens},
		{"exec-sealing", unix.MFD_EXEC | unix.MFD_ALLOW_SEALING, Opens},
		{"noexec-seal", unix.MFD_NOEXEC_SEAL, Refused},
	}
	var a []Attempt
	for _, f := range flags {
		a = append(a, Attempt{door + "/" + f.name, door, "memfd_create (" + f.name + ") and execute it", f.control, func(t *Target) Outcome {
			fd, failed := memfd(f.flags)
			if fd < 0 {
				return failed
			}
			if _, err := unix.Write(fd, tinyELF()); err != nil {
				unix.Close(fd)
				return judge("write", err)
			}
			unix.Fchmod(fd, 0o755)
			o := execFD(t, fd)
			unix.Close(fd)
			return o
		}})
	}
	return append(a,
		Attempt{door + "/map", door, "map a memfd executable", Opens, func(t *Target) Outcome {
			fd, err := unix.MemfdCreate("sharness-probe", 0)
			if err != nil {
				return judge("memfd_create", err)
			}
			defer unix.Close(fd)
			return mapExec(t, fd)
		}},
		Attempt{door + "/secret", door, "memfd_secret", Varies, func(t *Target) Outcome { // secretmem.enable
			_, err := t.forked(sys(unix.SYS_MEMFD_SECRET, 0))
			return judgeForked("memfd_secret", err)
		}},
	)
}

// mapExec maps a descriptor executable in every way there is.
func mapExec(t *Target, fd int) Outcome {
	const rx, ro = unix.PROT_READ | unix.PROT_EXEC, unix.PROT_READ
	page := uintptr(os.Getpagesize())
	unix.Ftruncate(fd, int64(page)) // a file that is only readable has its length already
	m := func(prot, flags uintptr) call { return sys(unix.SYS_MMAP, 0, page, prot, flags, uintptr(fd), 0) }
	var tries []Outcome
	for _, flags := range []uintptr{unix.MAP_PRIVATE, unix.MAP_SHARED} {
		_, err := t.forked(m(rx, flags))
		tries = append(tries, judgeForked("mmap PROT_EXEC", err))
		_, err = t.forked(m(ro, flags), sys(unix.SYS_MPROTECT, previous, page, rx))
		tries = append(tries, judgeForked("mprotect PROT_EXEC", err))
		_, err = t.forked(m(ro, flags), sys(unix.SYS_PKEY_MPROTECT, previous, page, rx, minus(1)))
		tries = append(tries, judgeForked("pkey_mprotect PROT_EXEC", err))
	}
	// personality(READ_IMPLIES_EXEC) turns PROT_READ into PROT_EXEC where the mount allows it, silently not where it does
	// not: the second mprotect would be the proof, and is the attempt above.
	return worst(tries...)
}
