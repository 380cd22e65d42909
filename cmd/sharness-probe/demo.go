package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/internal/sidedoor/attempt"
)

// telling are the attempts that need no explanation.
var telling = []string{
	"exec-direct/usr-bin-python3", "exec-workspace/workspace-elf", "exec-ldso/unlisted", "exec-memfd/cloexec", "exec-inject/map-workspace",
	"sig/peerpidfd-server", "pid1/kill-0", "ns/user-then-mount", "file-suid/chmod-suid", "kernel/io_uring_setup", "net-host/route4",
	"file-secret/read-etc-shadow", "file-config/write-etc-hosts", "file-git/write-hooks-post-checkout",
}

const client = "/run/sharness/bin/sharness-bash"

// demo is what `make demo` shows: the doors that are shut, and then the one that is meant to be used.
func demo(t *attempt.Target, w io.Writer) (int, error) {
	fmt.Fprintf(w, "\nI am an agent that turned hostile: uid %d, pid %d, in %s.\n", os.Getuid(), os.Getpid(), t.Workspace)
	fmt.Fprintf(w, "CLOSED: it was refused, with this error. ABSENT: there is nothing behind the door here to be reached.\nIMPOSSIBLE: this host or this build of mine cannot even make the attempt. OPEN would be a failure of sharness.\n\n")
	byID := map[string]attempt.Attempt{}
	for _, a := range attempt.All() {
		byID[a.ID] = a
	}
	status := 0
	for _, id := range telling {
		a, ok := byID[id]
		if !ok {
			return 2, fmt.Errorf("no attempt is called %q", id)
		}
		r := attempt.Run(a, t)
		said := r.Errno
		if said == "" {
			said = "-"
		}
		fmt.Fprintf(w, "  %-10s %-13s %s\n", strings.ToUpper(string(r.Verdict)), said, a.What)
		if r.Verdict == attempt.Open || r.Verdict == attempt.Error {
			fmt.Fprintf(w, "             %s\n", r.Detail)
			status = 1
			continue
		}
		if d, ok := sidedoor.ByID(a.Door); ok {
			fmt.Fprintf(w, "             door %s; walls: %s\n", d.ID, layers(d))
		}
	}
	fmt.Fprintf(w, "\nThe one way that works, a fresh sandbox for each command:\n\n  $ sharness-bash -c 'id; echo hello from the sandbox'\n")
	cmd := exec.Command(client, "-c", "id; echo hello from the sandbox")
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		fmt.Fprintf(w, "  %s", line)
	}
	if err != nil {
		return 1, fmt.Errorf("run %s: %w", client, err)
	}
	fmt.Fprintln(w)
	return status, nil
}

func layers(d sidedoor.Door) string {
	names := make([]string, 0, len(d.Layers))
	for _, l := range d.Layers {
		names = append(names, string(l))
	}
	return strings.Join(names, ", ")
}
