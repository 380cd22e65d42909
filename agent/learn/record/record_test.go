package record

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/agent"
	"github.com/sharness/sharness/agent/learn"
)

const uid = 1900000001

var config = Config{UID: uid, Own: []string{"/opt/agent/agent", "/usr/bin/env"}, Routed: []string{"/usr/bin/dash", "/run/client"},
	Writable: []string{"/ws", "/state", "/tmp"}}

// script is a run as the kernel side tells it.
type script struct{ *Recorder }

func who(pid, parent int) agent.Proc {
	return agent.Proc{PID: pid, StartNS: uint64(pid) * 10, Parent: parent, ParentStart: uint64(parent) * 10, UID: uid}
}

func (s script) fork(parent, pid int) { s.Life(&agent.Life{Proc: who(pid, parent)}) }
func (s script) end(pid int)          { s.Life(&agent.Life{Proc: who(pid, 0), Ended: true}) }

func image(n uint64) *agent.Image { return &agent.Image{Ino: n, Size: 1, Links: 1, Mode: 0o100755} }

// exec runs a file by the name asked; a script has another interpreter than itself.
func (s script) exec(pid int, exe, asked, interp string) {
	s.Event(&agent.Event{Kind: agent.Exec, Proc: who(pid, 1), Exe: agent.Text{Text: exe}, Asked: agent.Text{Text: asked}, Base: agent.Text{Text: interp}, Image: image(uint64(len(exe)))})
}

func (s script) plain(pid int, exe string) { s.exec(pid, exe, exe, exe) }

func (s script) maps(pid int, exe, file string) {
	s.Event(&agent.Event{Kind: agent.Map, Proc: who(pid, 1), Exe: agent.Text{Text: exe}, Base: agent.Text{Text: file}, Image: image(uint64(len(file)))})
}

func run(t *testing.T, c Config, body func(script)) *learn.Observation {
	t.Helper()
	return runWith(t, c, agent.Stats{}, body)
}

// runWith ends with the kernel side's counts.
func runWith(t *testing.T, c Config, counts agent.Stats, body func(script)) *learn.Observation {
	t.Helper()
	var out bytes.Buffer
	r := New(c, &out)
	// The stage, as root, before it is in the domain.
	r.Event(&agent.Event{Kind: agent.Exec, Proc: agent.Proc{PID: 1, StartNS: 10}, Exe: agent.Text{Text: "/bin/sharness-init"}, Asked: agent.Text{Text: "/bin/sharness-init"}, Base: agent.Text{Text: "/bin/sharness-init"}, Image: image(1)})
	s := script{r}
	s.fork(1, 2)
	s.plain(2, "/opt/agent/agent")
	body(s)
	r.Tick(time.Now(), counts)
	if err := r.Finish(true); err != nil {
		t.Fatal(err)
	}
	o, err := learn.Read(&out, nil)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// words are the images of an observation but the agent itself, in short.
func words(o *learn.Observation) []string {
	var all []string
	for _, i := range o.Images {
		w := i.Path
		add := func(is bool, text string) {
			if is {
				w += " " + text
			}
		}
		add(i.Own, "own")
		add(i.Routed, "routed")
		add(i.Denied, "denied")
		add(i.Script != "", "script:"+i.Script)
		add(i.Beneath != "", "beneath:"+i.Beneath)
		add(i.Strange != "", "strange")
		add(i.Execs > 0, fmt.Sprintf("execs:%d", i.Execs))
		add(i.Maps > 0, fmt.Sprintf("maps:%d", i.Maps))
		if i.Path != "/opt/agent/agent" {
			all = append(all, w)
		}
	}
	return all
}

func TestWhatIsRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		body func(script)
		want []string
	}{
		"a program, twice, and its library": {func(s script) {
			for pid := 3; pid < 5; pid++ {
				s.fork(2, pid)
				s.plain(pid, "/usr/bin/ls")
				s.maps(pid, "/usr/bin/ls", "/usr/lib/libc.so")
				s.end(pid)
			}
		}, []string{"/usr/bin/ls execs:2", "/usr/lib/libc.so maps:2"}},
		"what a shell runs is beneath it": {func(s script) {
			s.fork(2, 3)
			s.exec(3, "/usr/bin/zsh", "/bin/zsh", "/bin/zsh")
			s.fork(3, 4)
			s.fork(4, 5)
			s.plain(5, "/usr/bin/ls")
			s.maps(5, "/usr/bin/ls", "/usr/lib/libc.so")
		}, []string{"/usr/bin/ls beneath:/usr/bin/zsh execs:1", "/usr/bin/zsh execs:1", "/usr/lib/libc.so beneath:/usr/bin/zsh maps:1"}},
		"what the agent runs in the place of a shell is beneath it too": {func(s script) {
			s.fork(2, 3)
			s.plain(3, "/usr/bin/zsh")
			s.plain(3, "/usr/bin/ls")
		}, []string{"/usr/bin/ls beneath:/usr/bin/zsh execs:1", "/usr/bin/zsh execs:1"}},
		"a routed shell": {func(s script) {
			s.fork(2, 3)
			s.exec(3, "/usr/bin/dash", "/bin/sh", "/bin/sh")
		}, []string{"/usr/bin/dash routed execs:1"}},
		"a script of its own interpreter": {func(s script) {
			s.fork(2, 3)
			s.exec(3, "/opt/agent/agent", "/usr/bin/tool", "/opt/agent/agent")
		}, []string{"/usr/bin/tool own script:/opt/agent/agent execs:1"}},
		"a script of a routed interpreter": {func(s script) {
			s.fork(2, 3)
			s.exec(3, "/usr/bin/dash", "/usr/bin/zgrep", "/bin/sh")
		}, []string{"/usr/bin/zgrep script:/usr/bin/dash execs:1"}},
		"a script through env, of its own interpreter": {func(s script) {
			s.fork(2, 3)
			s.exec(3, "/usr/bin/env", "/usr/bin/tool", "/usr/bin/env")
			s.plain(3, "/opt/agent/agent")
		}, []string{"/usr/bin/tool own script:/usr/bin/env execs:1"}},
		"a script through env, of a stranger": {func(s script) {
			s.fork(2, 3)
			s.exec(3, "/usr/bin/env", "/usr/bin/tool", "/usr/bin/env")
			s.plain(3, "/usr/bin/ruby")
			s.fork(3, 4)
			s.plain(4, "/usr/bin/ls")
		}, []string{"/usr/bin/ls beneath:/usr/bin/tool execs:1", "/usr/bin/tool script:/usr/bin/env execs:1"}},
		"a script by a relative name": {func(s script) {
			s.fork(2, 3)
			s.exec(3, "/opt/agent/agent", "tool", "/opt/agent/agent")
		}, []string{"tool own script:/opt/agent/agent strange execs:1"}},
		"a script by a link of its own": {func(s script) {
			s.fork(2, 3)
			s.exec(3, "/opt/agent/agent", "/tmp/link", "/opt/agent/agent")
		}, []string{"/tmp/link own script:/opt/agent/agent strange execs:1"}},
		"a script by descriptor": {func(s script) {
			s.fork(2, 3)
			s.exec(3, "/opt/agent/agent", "/dev/fd/3", "/opt/agent/agent")
		}, []string{"/dev/fd/3 own script:/opt/agent/agent strange execs:1"}},
		"scripts by what each process has of its own": {func(s script) {
			for i, name := range []string{"//proc/self/cwd/tool", "/usr/../proc/self/fd/3", "/dev/stdin"} {
				s.fork(2, 3+i)
				s.exec(3+i, "/opt/agent/agent", name, "/opt/agent/agent")
			}
		}, []string{"//proc/self/cwd/tool own script:/opt/agent/agent strange execs:1", "/dev/stdin own script:/opt/agent/agent strange execs:1",
			"/usr/../proc/self/fd/3 own script:/opt/agent/agent strange execs:1"}},
		"a memfd": {func(s script) {
			s.fork(2, 3)
			s.Event(&agent.Event{Kind: agent.Exec, Proc: who(3, 2), Exe: agent.Text{Text: "/memfd:x", Detached: true}, Asked: agent.Text{Text: "/dev/fd/3"}, Base: agent.Text{Text: "/dev/fd/3"}, Image: image(9)})
		}, []string{"/memfd:x strange execs:1"}},
		"names that are no text, and such that are cut": {func(s script) {
			s.plain(2, "/usr/bin/a\x1b[31m")
			s.plain(2, "/usr/bin/b\xff")
			s.Event(&agent.Event{Kind: agent.Exec, Proc: who(2, 1), Exe: agent.Text{Text: "/long", Truncated: true}, Asked: agent.Text{Text: "/x"}, Base: agent.Text{Text: "/x"}, Image: image(9)})
		}, []string{"/long strange execs:1", "/usr/bin/a\x1b[31m strange execs:1", "/usr/bin/b\ufffd strange execs:1"}},
		"what was refused where it can write": {func(s script) {
			for _, e := range []agent.Event{
				{NR: unix.SYS_EXECVE, Asked: agent.Text{Text: "/ws/build/../tool"}},
				{NR: unix.SYS_EXECVE, Asked: agent.Text{Text: "./tool"}, Base: agent.Text{Text: "/ws"}},
				{NR: unix.SYS_MMAP, Base: agent.Text{Text: "/tmp/x.so"}},
				{NR: unix.SYS_EXECVE, Asked: agent.Text{Text: "/usr/share/doc"}},
				{NR: unix.SYS_KILL},
			} {
				e.Kind, e.Proc, e.Exe = agent.Denial, who(2, 1), agent.Text{Text: "/opt/agent/agent"}
				s.Event(&e)
			}
		}, []string{"/tmp/x.so denied", "/ws/tool denied"}},
		"another content of the same path": {func(s script) {
			s.plain(2, "/usr/bin/ls")
			s.Event(&agent.Event{Kind: agent.Exec, Proc: who(2, 1), Exe: agent.Text{Text: "/usr/bin/ls"}, Asked: agent.Text{Text: "/usr/bin/ls"}, Base: agent.Text{Text: "/usr/bin/ls"}, Image: image(77)})
		}, []string{"/usr/bin/ls execs:1", "/usr/bin/ls execs:1"}},
	} {
		o := run(t, config, c.body)
		if got := words(o); !slices.Equal(got, c.want) {
			t.Errorf("%s: got\n\t%s\nwant\n\t%s", name, strings.Join(got, "\n\t"), strings.Join(c.want, "\n\t"))
		}
		if m := o.Losses.Missing(); len(m) > 0 {
			t.Errorf("%s: missing %q", name, m)
		}
	}
}

func TestLossesAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		late   bool
		counts agent.Stats
		body   func(script)
		want   learn.Losses
	}{
		"nothing":   {body: func(s script) { s.fork(2, 3) }},
		"ring":      {counts: agent.Stats{Runs: agent.Count{Produced: 9, Lost: 7}}, want: learn.Losses{Lost: 7}},
		"malformed": {body: func(s script) { s.Malformed(nil) }, want: learn.Losses{Malformed: 1}},
		"orphan":    {body: func(s script) { s.fork(98, 99) }, want: learn.Losses{Orphans: 1}},
		"late":      {late: true, want: learn.Losses{Late: true}},
		"images": {body: func(s script) {
			for i := range maxImages {
				s.plain(2, fmt.Sprintf("/usr/bin/%d", i))
			}
		}, want: learn.Losses{Full: 1}},
	} {
		conf := config
		conf.Late = c.late
		if c.body == nil {
			c.body = func(script) {}
		}
		if o := runWith(t, conf, c.counts, c.body); o.Losses != c.want {
			t.Errorf("%s: got %+v, want %+v", name, o.Losses, c.want)
		}
	}
}

func TestNamesOfTheMomentAreNotKept(t *testing.T) {
	o := run(t, config, func(s script) {
		for pid := 3; pid < 6; pid++ {
			s.fork(2, pid)
			s.exec(pid, "/usr/bin/ls", fmt.Sprintf("/tmp/random-%d/ls", pid), fmt.Sprintf("/tmp/random-%d/ls", pid))
			s.exec(pid, "/usr/bin/ls", fmt.Sprintf("/proc/%d/exe", pid), fmt.Sprintf("/proc/%d/exe", pid))
		}
	})
	i := slices.IndexFunc(o.Images, func(i learn.Image) bool { return i.Path == "/usr/bin/ls" })
	if i < 0 || !slices.Equal(o.Images[i].Asked, []string{"/proc/*", "/tmp/*"}) {
		t.Errorf("got %+v", o.Images)
	}
}

func TestManyNamesLeaveTheLeast(t *testing.T) {
	var a, b []string
	for i := range 100 {
		a = add(a, fmt.Sprintf("%02d", i))
		b = add(b, fmt.Sprintf("%02d", 99-i))
	}
	if !slices.Equal(a, b) || len(a) != maxNames || a[0] != "00" {
		t.Errorf("got %q and %q", a, b)
	}
}

func TestWhatWasAskedForIsKept(t *testing.T) {
	c := config
	c.Shown, c.Stage = []string{"/usr"}, "/bin/sharness-init"
	address := func(port byte) []byte { return []byte{unix.AF_INET, 0, 0, port, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0} }
	o := run(t, c, func(s script) {
		tried := func(pid int, e agent.Event) {
			e.Kind, e.Proc, e.Exe.Text = agent.Tried, who(pid, 1), "/opt/agent/agent"
			s.Event(&e)
		}
		for range 3 {
			tried(2, agent.Event{NR: unix.SYS_OPENAT, Errno: unix.ENOENT, Asked: agent.Text{Text: "/srv/../srv/x"}})
		}
		tried(2, agent.Event{NR: unix.SYS_OPENAT, Errno: unix.ENOENT, Asked: agent.Text{Text: "x"}, Base: agent.Text{Text: "/srv"}})
		tried(2, agent.Event{NR: unix.SYS_OPENAT, Errno: unix.ENOENT, Args: [6]uint64{2: unix.O_WRONLY | unix.O_CREAT}, Asked: agent.Text{Text: "/srv/x"}})
		tried(2, agent.Event{NR: unix.SYS_NEWFSTATAT, Errno: unix.ENOENT, Asked: agent.Text{Text: "/srv/y"}})
		tried(2, agent.Event{NR: unix.SYS_MKDIRAT, Errno: unix.EROFS, Asked: agent.Text{Text: "/usr/new"}})
		tried(2, agent.Event{NR: unix.SYS_EXECVE, Errno: unix.ENOENT, Asked: agent.Text{Text: "/srv/tool"}})
		tried(2, agent.Event{NR: unix.SYS_CONNECT, Errno: unix.ECONNREFUSED, Address: address(80), Socket: &agent.Socket{Family: unix.AF_INET, Type: unix.SOCK_STREAM}})
		for range 2 {
			tried(2, agent.Event{NR: unix.SYS_KILL, Args: [6]uint64{3, uint64(unix.SIGTERM)}})
		}
		tried(2, agent.Event{NR: unix.SYS_TGKILL, Args: [6]uint64{3, 3, 35}})
		tried(2, agent.Event{NR: unix.SYS_KILL, Args: [6]uint64{3, 0}})
		// What is missing there is missing, what is the view's own says nothing, and what cannot be read either.
		for _, path := range []string{"/usr/x", "/ws/x", "/tmp/x", "/proc/1/x", "/dev/x", "/run/sharness/x", "/a\nb", "x"} {
			tried(2, agent.Event{NR: unix.SYS_OPENAT, Errno: unix.ENOENT, Asked: agent.Text{Text: path}})
		}
		tried(2, agent.Event{NR: unix.SYS_OPENAT, Errno: unix.ENOENT, Asked: agent.Text{Text: "/srv/cut", Truncated: true}})
		tried(2, agent.Event{NR: unix.SYS_GETPID, Errno: unix.ENOENT, Asked: agent.Text{Text: "/srv/z"}})
		// A program that will run in a sandbox, and the stage, are not the agent.
		s.fork(2, 3)
		s.plain(3, "/usr/bin/zsh")
		tried(3, agent.Event{NR: unix.SYS_OPENAT, Errno: unix.ENOENT, Asked: agent.Text{Text: "/srv/shell"}})
		s.Event(&agent.Event{Kind: agent.Tried, Proc: who(2, 1), Exe: agent.Text{Text: c.Stage}, NR: unix.SYS_OPENAT, Errno: unix.ENOENT, Asked: agent.Text{Text: "/srv/stage"}})
		s.Event(&agent.Event{Kind: agent.Tried, Proc: who(2, 1), Exe: agent.Text{Text: "///home/me" + c.Stage}, NR: unix.SYS_OPENAT, Errno: unix.ENOENT, Asked: agent.Text{Text: "/srv/stage"}})
	})
	var got []string
	for _, a := range o.Attempts {
		got = append(got, a.Want+" "+a.Target)
		if !slices.Equal(a.By, []string{"/opt/agent/agent"}) {
			t.Errorf("%s: by %q", a.Target, a.By)
		}
	}
	want := []string{"connect tcp 127.0.0.1:80", "exec /srv/tool", "read /srv/x", "read /srv/y", "write /srv/x", "write /usr/new"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	if want := []learn.Signal{{Name: "35", Sent: 1}, {Name: "SIGTERM", Sent: 2}}; !slices.Equal(o.Signals, want) {
		t.Errorf("signals: got %+v, want %+v", o.Signals, want)
	}
	if len(o.Losses.Missing()) > 0 || o.Unkept > 0 {
		t.Errorf("missing %q, unkept %d", o.Losses.Missing(), o.Unkept)
	}
}

func TestAttemptsBeyondWhatIsKeptAreCounted(t *testing.T) {
	o := run(t, config, func(s script) {
		for i := range maxAttempts + 7 {
			s.Event(&agent.Event{Kind: agent.Tried, Proc: who(2, 1), NR: unix.SYS_OPENAT, Errno: unix.ENOENT, Asked: agent.Text{Text: fmt.Sprintf("/srv/%d", i)}})
		}
	})
	if len(o.Attempts) != maxAttempts || o.Unkept != 7 || len(o.Losses.Missing()) > 0 {
		t.Errorf("%d kept, %d not, missing %q", len(o.Attempts), o.Unkept, o.Losses.Missing())
	}
}

func TestMappingThatCouldNotBeLookedAtIsCounted(t *testing.T) {
	o := run(t, config, func(s script) {
		for range 3 {
			s.Event(&agent.Event{Kind: agent.Map, Proc: who(2, 1), Exe: agent.Text{Text: "/opt/agent/agent"}, Base: agent.Text{Unreadable: true}})
		}
	})
	if o.Unseen != 3 || len(words(o)) != 0 || len(o.Losses.Missing()) != 0 {
		t.Errorf("%d, images %q, missing %q", o.Unseen, words(o), o.Losses.Missing())
	}
}
