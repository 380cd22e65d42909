package agent

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
)

func (p *Policy) judgeProcess(v *verdict, c call, e *Event) {
	pid, byFD := int32(e.Args[0]), c.spec.Fd >= 0
	switch c.topic {
	case aboutSignal:
		v.kind, v.cause = event.SignalDenied, p.ifHolds(causeLandlock)
	case aboutTrace:
		v.kind, v.cause = event.PtraceDenied, p.ifHolds(causeSeccomp)
	default:
		v.cause = causeDAC
	}
	sig := e.Args[1]
	switch c.name {
	case "tgkill", "rt_tgsigqueueinfo":
		sig = e.Args[2]
	case "process_mrelease":
		v.cause = p.ifHolds(causeSeccomp)
	case "ptrace":
		pid = int32(e.Args[1])
		if e.Args[0] == unix.PTRACE_TRACEME {
			pid = 0
		}
	case "setpriority", "ioprio_set":
		pid = int32(e.Args[1])
	}
	v.target = pidTarget(pid)
	if byFD {
		v.target = "pidfd " + strconv.Itoa(int(pid))
	}
	if c.topic == aboutSignal && c.name != "process_mrelease" {
		v.target += ", " + signalName(int32(sig))
		v.probe = int32(sig) == 0
	}
	switch {
	case c.topic == aboutProcess && pid == 0:
		// Its own settings: no door.
	case byFD:
		v.door = doorOf(c.topic, 0)
	default:
		v.door = doorOf(c.topic, pid)
	}
}

// doorOf is the door of something done to a process, which the caller's namespace numbers: 1 is the stage.
func doorOf(t topic, pid int32) string {
	switch {
	case pid == 1:
		return "pid1"
	case t == aboutTrace:
		return "ptrace"
	}
	return "sig"
}

func aimedAt(pid int32) string { return doorOf(aboutSignal, pid) }

func pidTarget(pid int32) string {
	switch {
	case pid == -1:
		return "every process"
	case pid < -1:
		return "group " + strconv.Itoa(-int(pid))
	case pid == 0:
		return "own"
	}
	return "pid " + strconv.Itoa(int(pid))
}

func signalName(sig int32) string {
	if name := unix.SignalName(unix.Signal(sig)); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", sig)
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }
func hex(n uint64) string    { return strconv.FormatUint(n, 16) }
