package bashserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/sharness/sharness/bashserver/wire"
)

func TestProgramIsFoundFromWhatWasExecuted(t *testing.T) {
	// The supervisor gives both names of a merged /usr.
	cfg := Config{Routes: []string{"/bin/sh", "/usr/bin/sh", "/usr/bin/dash", "/bin/dash", "/usr/bin/git", "/bin/git", "/usr/bin/node", "/opt/bin/node", "/sbin/ip"},
		WorkspaceRoot: "/w"}
	if err := cfg.complete(); err != nil {
		t.Fatal(err)
	}
	own := cfg.ClientPath
	for name, tc := range map[string]struct {
		q    wire.Request
		path string
		argv []string
	}{
		"client":               {wire.Request{Execfn: own, Argv: []string{own, "-c", "x"}}, "/usr/bin/bash", []string{"bash", "-c", "x"}},
		"login client":         {wire.Request{Execfn: own, Argv: []string{"-sharness-bash"}}, "/usr/bin/bash", []string{"-bash"}},
		"renamed client":       {wire.Request{Execfn: own, Argv: []string{"sh", "-c"}}, "/usr/bin/bash", []string{"sh", "-c"}},
		"json":                 {wire.Request{Execfn: own, Argv: []string{own, "--json", "-c", "x"}}, "/usr/bin/bash", []string{"bash", "-c", "x"}},
		"json later is bash's": {wire.Request{Execfn: own, Argv: []string{own, "-c", "--json"}}, "/usr/bin/bash", []string{"bash", "-c", "--json"}},
		"route":                {wire.Request{Execfn: "/bin/sh", Argv: []string{"/bin/sh", "-c"}}, "/bin/sh", []string{"/bin/sh", "-c"}},
		"merged usr":           {wire.Request{Execfn: "/bin/node", Argv: []string{"node"}}, "/usr/bin/node", []string{"node"}},
		"and back":             {wire.Request{Execfn: "/usr/sbin/ip", Argv: []string{"ip"}}, "/sbin/ip", []string{"ip"}},
		"relative":             {wire.Request{Execfn: "../usr/bin/git", Argv: []string{"git"}}, "/usr/bin/git", []string{"git"}},
		"symlink":              {wire.Request{Execfn: "/w/x", Exe: "/usr/bin/git", Argv: []string{"x"}}, "/usr/bin/git", []string{"x"}},
		"script": {wire.Request{Execfn: "/w/s.sh", Exe: "/usr/bin/dash", Argv: []string{"/bin/sh", "/w/s.sh"}}, "/usr/bin/dash",
			[]string{"/bin/sh", "/w/s.sh"}},
		"script without /proc": {wire.Request{Execfn: "/w/s.sh", Argv: []string{"/bin/sh", "/w/s.sh"}}, "/bin/sh", []string{"/bin/sh", "/w/s.sh"}},
		"self":                 {wire.Request{Execfn: "/proc/self/exe", Exe: "/usr/bin/git", Argv: []string{"git"}}, "/usr/bin/git", []string{"git"}},
		"link in PATH":         {wire.Request{Execfn: "/shim/git", Exe: own, Argv: []string{"git"}}, "/usr/bin/git", []string{"git"}},
		"one of two in PATH":   {wire.Request{Execfn: "/shim/node", Exe: own, Argv: []string{"node"}}, "/usr/bin/bash", []string{"node"}},
		"bash link":            {wire.Request{Execfn: "/shim/bash", Exe: own, Argv: []string{"/shim/bash"}}, "/usr/bin/bash", []string{"/shim/bash"}},
		"json is no route's":   {wire.Request{Execfn: "/bin/sh", Argv: []string{"sh", "--json"}}, "/bin/sh", []string{"sh", "--json"}},
		"unknown":              {wire.Request{Execfn: "/usr/bin/perl", Exe: "/usr/bin/perl", Argv: []string{"git"}}, "", nil},
		"prefix of a route":    {wire.Request{Execfn: "/usr/bin/gi", Argv: []string{"g"}}, "", nil},
	} {
		tc.q.Cwd = "/w"
		p, err := cfg.program(tc.q)
		if p.path != tc.path || !reflect.DeepEqual(p.argv, tc.argv) || (err != nil) != (tc.path == "") {
			t.Errorf("%s: got %q %q, %v", name, p.path, p.argv, err)
		}
		if want := name == "json"; p.json != want {
			t.Errorf("%s: json %v", name, p.json)
		}
	}
}

// What the kernel really passes for links and scripts, with the client lying where the interpreter is expected.
func TestRoutesWorkThroughLinksAndScripts(t *testing.T) {
	routes := func(s *supervisor) {
		bin := filepath.Join(s.dir, "bin")
		os.Mkdir(bin, 0o755)
		b, err := os.ReadFile(client)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, name := range []string{"dash", "seq"} {
			os.WriteFile(filepath.Join(bin, name), b, 0o755)
			s.cfg.Routes = append(s.cfg.Routes, filepath.Join(bin, name))
		}
		os.WriteFile(filepath.Join(bin, "stray"), b, 0o755)
		os.Symlink("dash", filepath.Join(bin, "sh"))
		os.WriteFile(filepath.Join(s.dir, "script"), []byte("#!"+bin+"/sh -u\necho $0 $1 $-\n"), 0o755)
	}
	s := start(t, Config{}, inProcess, routes)
	for _, tc := range []struct {
		path string
		args []string
		want string
	}{
		{"bin/dash", []string{"-c", "echo $0", "x"}, "x\n"},
		{"bin/sh", []string{"-c", "echo $0", "x"}, "x\n"},
		{s.dir + "/bin/seq", []string{"2"}, "1\n2\n"},
		{s.dir + "/script", []string{"arg"}, s.dir + "/script arg u\n"},
	} {
		cmd := &exec.Cmd{Path: tc.path, Args: append([]string{tc.path}, tc.args...), Dir: s.dir,
			Env: append(os.Environ(), "SHARNESS_SOCKET="+s.sock)}
		if out, errs, ws := s.finish(cmd); out != tc.want || ws != 0 {
			t.Errorf("%s: got %q, %q, %v", tc.path, out, errs, ws)
		}
	}
	cmd := &exec.Cmd{Path: "bin/stray", Args: []string{"stray"}, Dir: s.dir, Env: []string{"SHARNESS_SOCKET=" + s.sock}}
	if _, errs, ws := s.finish(cmd); ws.ExitStatus() != 126 {
		t.Errorf("a path without a route: %q, %v", errs, ws)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, want := range []uint64{0, 0, wire.FlagNoTimeout, 0} {
		if s.starts[i].A != want {
			t.Errorf("start %d: flags %d, want %d", i, s.starts[i].A, want)
		}
	}
}
