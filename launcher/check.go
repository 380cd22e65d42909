package launcher

import (
	"fmt"
	"os"
	"slices"

	"github.com/sharness/sharness/bashserver/wire"
	"golang.org/x/sys/unix"
)

// killReasons are what bashd may give as the reason for the end of a command.
var killReasons = []wire.Reason{wire.ReasonInternal, wire.ReasonClientGone, wire.ReasonOutputLimit, wire.ReasonStopped}

// check looks at everything in a record of bashd's that does not depend on what was said before: type, ranges, and what the
// descriptors are. bashd has no privilege and is not trusted; a record that it cannot have meant ends it.
func check(rec wire.Record, files []*os.File) error {
	switch rec.Type {
	case wire.RecStart:
		return checkStart(rec, files)
	case wire.RecSignal:
		if !wire.Forwarded(rec.A) || rec.B != 0 || rec.C != 0 {
			return fmt.Errorf("signal %d is not one that a client sends", rec.A)
		}
	case wire.RecKill:
		if !slices.Contains(killReasons, wire.Reason(rec.A)) || rec.B != 0 || rec.C != 0 {
			return fmt.Errorf("kill for reason %d", rec.A)
		}
	case wire.RecTaken, wire.RecDone:
		if rec.A != 0 || rec.B != 0 || rec.C != 0 {
			return fmt.Errorf("record %d with numbers %d, %d, %d", rec.Type, rec.A, rec.B, rec.C)
		}
	default:
		return fmt.Errorf("record of type %d is not bashd's to send", rec.Type)
	}
	return nil
}

func checkStart(rec wire.Record, files []*os.File) error {
	const flags = wire.FlagNoTimeout | wire.FlagTerminal | wire.FlagJob
	terminal, job := rec.A&wire.FlagTerminal != 0, rec.A&wire.FlagJob != 0
	switch {
	case rec.A&^flags != 0 || rec.C != 0 || terminal && job:
		return fmt.Errorf("start with flags %#x", rec.A)
	case rec.B>>32 != 0 || !terminal && rec.B != 0:
		return fmt.Errorf("start with a terminal of size %#x", rec.B)
	case terminal && len(files) != 1, !terminal && len(files) != 4:
		return fmt.Errorf("start with %d descriptors", len(files))
	}
	if err := checkRequest(files[0]); err != nil {
		return err
	}
	// A command gets fresh pipes and nothing else: whatever a client sent to bashd, a file or a terminal of the orchestrator's,
	// must not come out here.
	for i, f := range files[1:] {
		var fs unix.Statfs_t
		if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
			return fmt.Errorf("start: descriptor %d: %w", i, err)
		}
		if fs.Type != unix.PIPEFS_MAGIC {
			return fmt.Errorf("start: descriptor %d is no pipe", i)
		}
		mode, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
		if err != nil {
			return fmt.Errorf("start: descriptor %d: %w", i, err)
		}
		if want := min(i, 1); mode&unix.O_ACCMODE != want { // O_RDONLY is 0, O_WRONLY 1
			return fmt.Errorf("start: descriptor %d is the wrong end of a pipe", i)
		}
	}
	return nil
}

// checkRequest says whether a request can no longer change under the stage's eyes, and is no larger than a request may be. Its
// bytes are the stage's to read.
func checkRequest(f *os.File) error {
	const want = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&want != want {
		return fmt.Errorf("start: the request is not sealed (%v)", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("start: the request: %w", err)
	}
	if st.Size <= 0 || st.Size > wire.MaxCommand {
		return fmt.Errorf("start: a request of %d bytes", st.Size)
	}
	return nil
}
