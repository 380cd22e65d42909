package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// inner is a script that runs for a while. It fails where it does not do what is measured.
type inner struct {
	name, script string
	cpu          bool
	rounds       int
	output       int // bytes that it prints
}

// inside measures what programs notice that run for a while: each row is a script, timed whole by the wall or by the
// processor time that bash's own times say.
func (g group) inside() error {
	if err := g.tree(); err != nil {
		return err
	}
	fmt.Printf("\n%-34s %12s %12s %8s\n", "inside a command", "bare ms", "sharness ms", "x bare")
	for _, c := range []inner{
		{"300 times /bin/true", "for ((i = 0; i < 300; i++)); do /bin/true; done", false, 5, 0},
		{"git status, 50,000 files, CPU", "cd tree; s=$(git status --porcelain --branch); test \"$s\" = '## tree'", true, 5, 0},
		// Each folder has one such file. Without a path rg looks through a standard input that is a pipe, and through nothing else.
		{"rg, 50,000 files, CPU", "cd tree; n=$(rg -l '^file 77 of' . | wc -l); test $n = 500", true, 5, 0},
		{"1 GiB to standard output", "head -c 1G /dev/zero", false, 3, 1 << 30},
	} {
		bare, ours, err := g.compare(c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Printf("%-34s %12.1f %12.1f %8.2f\n", c.name, ms(quantile(bare, 0.5)), ms(quantile(ours, 0.5)), ratio(ours, bare))
	}
	return nil
}

// tree makes the files that rg and git look at.
func (g group) tree() error {
	script := `mkdir tree; cd tree; for ((d = 0; d < 500; d++)); do mkdir $d; for ((f = 0; f < 100; f++)); do
		echo "file $f of folder $d, with a line that is about as long as a hundred bytes, so that there is something" >$d/$f; done; done
		git init -q -b tree; git add .; git -c user.name=b -c user.email=b@example.com commit -qm tree`
	cmd := exec.Command("/bin/bash", "-ec", script)
	cmd.Dir, cmd.Env = g.dir, environment
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner, Gid: owner}}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("tree of 50,000 files: %w: %s", err, out)
	}
	return nil
}

// compare runs a script as its user would, and in a sandbox, in turn.
func (g group) compare(c inner) (bare, ours []time.Duration, err error) {
	script := "set -e; " + c.script + "; times >&2"
	for round := range c.rounds + 1 {
		for i, r := range []row{{"bare", []string{"/bin/bash", "-c", script}, nil}, g.rows[len(g.rows)-1]} {
			if i == 1 {
				r.argv = []string{r.argv[0], "-c", script}
			}
			d, err := r.timed(g.dir, c, i == 0)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", r.name, err)
			}
			switch {
			case round == 0: // warms up
			case i == 0:
				bare = append(bare, d)
			default:
				ours = append(ours, d)
			}
		}
	}
	return bare, ours, nil
}

func (r row) timed(dir string, c inner, asOwner bool) (time.Duration, error) {
	cmd := exec.Command(r.argv[0], r.argv[1:]...)
	cmd.Dir, cmd.Env = dir, append(append([]string{}, environment...), r.env...)
	if asOwner {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner, Gid: owner}}
	}
	var words strings.Builder
	cmd.Stderr = &words
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	buf, printed := make([]byte, 1<<20), 0
	for err == nil {
		var n int
		n, err = out.Read(buf)
		printed += n
	}
	if err := cmd.Wait(); err != nil {
		return 0, fmt.Errorf("%w: %s", err, strings.TrimSpace(words.String()))
	}
	took := time.Since(began)
	if printed != c.output {
		return 0, fmt.Errorf("printed %d bytes, want %d", printed, c.output)
	}
	if !c.cpu {
		return took, nil
	}
	return childTimes(words.String())
}

// childTimes reads the second line of bash's times: user and system time of what it ran.
func childTimes(text string) (total time.Duration, err error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for _, field := range strings.Fields(lines[len(lines)-1]) {
		d, err := time.ParseDuration(field)
		if err != nil {
			return 0, fmt.Errorf("times of bash: %q: %w", text, err)
		}
		total += d
	}
	return total, nil
}

// idleAfter is when a process of ours has given back what only its last work needed (internal/lean), and a little more.
const idleAfter = 12 * time.Second

// memory says what the session's own processes take when nothing has run for a while, and what the kernel takes for a sandbox beyond a plain process.
func (h *host) memory(g group) error {
	time.Sleep(idleAfter)
	total, own := 0, 0
	pids := []int{h.server.Process.Pid}
	children, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return err
	}
	for _, path := range children {
		data, _ := os.ReadFile(path) // it may have ended
		if f := strings.Fields(string(data)); len(f) > 3 && f[1] == "(sharness-bashd)" && f[3] == strconv.Itoa(pids[0]) {
			pid, _ := strconv.Atoi(f[0])
			pids = append(pids, pid)
		}
	}
	for _, pid := range pids {
		status := fmt.Sprintf("/proc/%d/status", pid)
		all, err := field(status, "VmRSS:")
		if err != nil {
			return err
		}
		private, err := field(status, "RssAnon:")
		if err != nil {
			return err
		}
		total, own = total+all, own+private
	}
	// The rest are the programs in the page cache.
	fmt.Printf("\nmemory: supervisor and sharness-bashd %.1f MiB resident when idle, %.1f of them their own", float64(total)/1024, float64(own)/1024)
	bare, err := kernelMemory(row{"bare", []string{"/bin/sleep", "30"}, nil}, g.dir, 0, 40)
	if err != nil {
		return err
	}
	r := g.rows[len(g.rows)-1]
	client := r.argv[0]
	// A job is a sandbox with a program in it, and nothing else: its client has ended. There may be 32.
	r.argv = []string{client, "--background", "-c", "exec sleep 10"}
	job, err := kernelMemory(r, g.dir, 4, 32)
	if err != nil {
		return err
	}
	r.argv = []string{client, "-c", "exec sleep 30"}
	ours, err := kernelMemory(r, g.dir, 32, 64)
	if err != nil {
		return err
	}
	fmt.Printf("; of the kernel's %.2f MiB for a sandbox, %.2f for a command with its client\n", job-bare, ours-bare)
	return nil
}

// kernelMemory is what the kernel takes for one more of many that run at once, in MiB. The first do not count: a session keeps
// network namespaces and groups for as many as ran before.
func kernelMemory(r row, dir string, first, many int) (float64, error) {
	var cmds []*exec.Cmd
	defer func() {
		for _, cmd := range cmds {
			_ = cmd.Process.Kill() // one that started a job has ended
			_ = cmd.Wait()
		}
		time.Sleep(10 * time.Second) // jobs too
	}()
	before := 0
	for i := range many {
		if i == first {
			time.Sleep(2 * time.Second)
			var err error
			if before, err = kernelNow(); err != nil {
				return 0, err
			}
		}
		cmd := exec.Command(r.argv[0], r.argv[1:]...)
		cmd.Dir, cmd.Env = dir, append(append([]string{}, environment...), r.env...)
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		cmds = append(cmds, cmd)
	}
	time.Sleep(2 * time.Second)
	now, err := kernelNow()
	return float64(now-before) / 1024 / float64(many-first), err
}

func kernelNow() (kb int, err error) {
	for _, name := range []string{"Slab:", "KernelStack:", "PageTables:", "Percpu:"} {
		n, err := field("/proc/meminfo", name)
		if err != nil {
			return 0, err
		}
		kb += n
	}
	return kb, nil
}

// field reads a line "NAME VALUE kB".
func field(path, name string) (int, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			return strconv.Atoi(f[1])
		}
	}
	return 0, fmt.Errorf("%s: no %s", path, name)
}
