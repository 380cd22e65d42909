// Command bench measures what sharness adds to a start and to a command, beside a bare process and bubblewrap, in one
// interleaved run: every round takes one sample of each row in a random order, after a rest, as agents send commands one
// by one. Then it measures what tracing costs, how many denials it takes in, and how soon one is in the log; and of commands
// how many a second there can be, what they notice inside, and what memory they take. It prints medians and p95 and
// asserts nothing: times are of the machine they are measured on, only the ratios of one run are worth comparing. The output filter is measured
// by itself.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// group is what is compared with one another: the row of sharness with its two yardsticks.
type group struct {
	name string
	dir  string // that all run in
	rows []row  // bare, bwrap, sharness
}

type row struct {
	name string
	argv []string
	env  []string
}

func main() {
	if len(os.Args) == 8 && os.Args[1] == beRefusedWord {
		if err := beRefused(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	only := flag.String("only", "", "measure only start, command or trace, or measure the filter")
	rounds := flag.Int("rounds", 40, "samples of each row")
	rest := flag.Duration("rest", 5*time.Millisecond, "before each sample")
	flag.Parse()
	if err := run(*only, *rounds, *rest); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(only string, rounds int, rest time.Duration) (err error) {
	switch {
	case only != "" && only != "start" && only != "command" && only != "trace" && only != "filter":
		return fmt.Errorf("-only %s: want start, command, trace or filter", only)
	case rounds < 1:
		return errors.New("-rounds: want at least one")
	case only == "filter":
		return filter(rounds)
	case os.Geteuid() != 0:
		return errors.New("must be root: sudo make bench")
	}
	bwrap, err := exec.LookPath("bwrap")
	if err != nil && only != "trace" {
		return fmt.Errorf("bubblewrap is what it is compared with: %w; run: make deps", err)
	}
	h, err := newHost()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()

	fmt.Println(machine())
	if only == "" || only == "start" {
		if err := h.start(bwrap).measure(rounds, rest); err != nil {
			return err
		}
	}
	if only == "" || only == "trace" {
		if err := h.trace(rounds, rest); err != nil {
			return fmt.Errorf("trace: %w", err)
		}
	}
	// Only now: a workspace has one session.
	if only == "" || only == "command" {
		g, err := h.command(bwrap)
		if err != nil {
			return err
		}
		program, err := h.routedProgram(bwrap, g)
		if err != nil {
			return err
		}
		if err := errors.Join(h.memory(g), g.load(program), g.inside()); err != nil {
			return err
		}
		return g.measure(rounds, rest)
	}
	return nil
}

// closest are the flags of bubblewrap that come closest to a sandbox of ours: it has no Landlock, no cgroup, no pinned
// files and, without a filter handed to it, no seccomp, so it does less.
func closest(bwrap, workspace string, argv ...string) []string {
	return append([]string{bwrap, "--unshare-all", "--uid", "65534", "--gid", "65534", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
		"--tmpfs", "/tmp", "--bind", workspace, workspace, "--cap-drop", "ALL", "--new-session", "--die-with-parent", "--"}, argv...)
}

// start compares starting a program: /bin/true as an orchestrator.
func (h *host) start(bwrap string) group {
	return group{"start", h.workspace, []row{
		{"bare", []string{h.program}, nil},
		{"bwrap", closest(bwrap, h.workspace, h.program), nil},
		{"sharness enforce", []string{h.sharness, "enforce", "-m", h.manifest, "--workspace", h.workspace, "--events", h.events, "--", h.program}, nil},
	}}
}

// command compares one shell command, in a sandbox of its own each time.
func (h *host) command(bwrap string) (group, error) {
	socket, err := h.serve()
	if err != nil {
		return group{}, err
	}
	shell := []string{"/bin/bash", "-c", "true"}
	client := filepath.Join(filepath.Dir(h.sharness), "sharness-bash")
	return group{"command", h.workspace, []row{
		{"bare", shell, nil},
		{"bwrap", closest(bwrap, h.workspace, shell...), nil},
		{"sharness-bash", []string{client, "-c", "true"}, []string{"SHARNESS_SOCKET=" + socket}},
	}}, nil
}

// routedProgram compares a program that ends at once and is no shell: its path is routed to the server, as those of git
// or node may be, so the sandbox holds this program alone.
func (h *host) routedProgram(bwrap string, command group) (group, error) {
	ours := command.rows[len(command.rows)-1]
	link := filepath.Join(h.dir, filepath.Base(routed))
	if err := os.Symlink(ours.argv[0], link); err != nil {
		return group{}, err
	}
	return group{"program", h.workspace, []row{
		{"bare", []string{routed, "0"}, nil},
		{"bwrap", closest(bwrap, h.workspace, routed, "0"), nil},
		{ours.name, []string{link, "0"}, ours.env},
	}}, nil
}
