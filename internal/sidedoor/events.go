package sidedoor

import "strings"

// eventDoors are attempts, or the beginnings of their names, whose refusal comes as an event of another door: a call does
// not say what it was meant for.
var eventDoors = []struct{ attempt, door string }{
	{"cg-escape/mount", "ns"},
	{"exec-inject/ld-so-preload", "file-config"},
	{"exec-interp/exec", "exec-workspace"},
	{"exec-interp/connect", "net-host"},
	{"exec-interp/memfd", "exec-memfd"},
	{"exec-ldso/memfd", "exec-memfd"},
	{"exec-scm/meeting-point", "file-fifo"},
	{"exec-workspace/", "file-config"}, // where the file cannot even be written
	{"file-git/move-", "file-config"},
	{"file-link/", "file-secret"},
	{"file-secret/handle", "kernel"},
	{"log-inject/", "exec-workspace"},
	{"net-host/", "net-udp"},
	{"setid/", "exec-direct"},
	{"sig/parent", "pid1"},
	{"srv-fd/client-write", "exec-swap"},
	{"srv-fd/proc-exe", "pid1"},
	{"srv-fd/unlink", "file-config"},
}

// EventDoor is the door that the event of a refused attempt names when it is not the attempt's own; else empty.
func EventDoor(attempt string) string {
	for _, e := range eventDoors {
		if strings.HasPrefix(attempt, e.attempt) {
			return e.door
		}
	}
	return ""
}

// Untold says whether the refusal of an attempt is no denial: a call whose arguments no filter can look at is answered
// ENOSYS, so that programs fall back to an older one, which is judged.
func Untold(attempt string) bool {
	return strings.HasPrefix(attempt, "ns/clone3-") || strings.HasPrefix(attempt, "file-suid/openat2-")
}
