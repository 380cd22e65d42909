package bashserver

import (
	"os"
	"os/exec"
	"testing"
)

// BenchmarkRoundTrip is the whole way of `true` through client, server and a supervisor without a sandbox; compare
// with BenchmarkDirect, the same program started by itself.
func BenchmarkRoundTrip(b *testing.B) {
	routes := func(s *supervisor) {
		s.cfg.Routes = []string{s.dir + "/bin/true"}
		os.Mkdir(s.dir+"/bin", 0o755)
		bin, err := os.ReadFile(client)
		if err != nil {
			b.Fatal(err)
		}
		os.WriteFile(s.dir+"/bin/true", bin, 0o755)
	}
	s := start(b, Config{}, ownProcess, routes)
	for b.Loop() {
		cmd := exec.Cmd{Path: s.dir + "/bin/true", Args: []string{"true"}, Dir: s.dir, Env: []string{"SHARNESS_SOCKET=" + s.sock}}
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDirect(b *testing.B) {
	for b.Loop() {
		cmd := exec.Cmd{Path: "/usr/bin/true", Args: []string{"true"}, Env: []string{}}
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkClientAlone is a client that finds no server: what starting it costs.
func BenchmarkClientAlone(b *testing.B) {
	for b.Loop() {
		cmd := exec.Cmd{Path: client, Args: []string{"true"}, Env: []string{"SHARNESS_SOCKET=/nonexistent"}}
		cmd.Run()
	}
}
