package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sharness/sharness/internal/kerneltest"
)

// greeter is a TCP server on the host's loopback that says who it is and counts its visitors.
func greeter(t *testing.T, says string) (port int, visitors func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	count := make(chan int, 1)
	count <- 0
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			count <- 1 + <-count
			fmt.Fprintln(c, says)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close() })
	return l.Addr().(*net.TCPAddr).Port, func() int {
		n := <-count
		count <- n
		return n
	}
}

// reach tells, for each address, what a connection to it reads, or why there is none.
const reach = `reach() {
	if { exec 3<>/dev/tcp/$1/$2; } 2>err; then read -t 5 line <&3; echo "$1: read '$line'"; exec 3>&-
	else read -r why <err; echo "$1: ${why##*: }"; fi
}
`

func TestEndpointsAreAllThatAnOrchestratorReaches(t *testing.T) {
	kerneltest.RequireRoot(t)
	dir := sessionRoot(t)
	t.Cleanup(func() { forget(t, "test-endpoint") })
	allowed, visits := greeter(t, "the endpoint")
	other, intrusions := greeter(t, "somebody else")
	text, err := pinnedManifest("test-endpoint", []string{"bash"}, fmt.Sprintf("connect:\n"+
		"  - {name: 127.0.0.1, port: %d, tls: none}\n  - {name: api.example.com, port: 443}\n  - {name: mcp.example.com, port: 443}\n", allowed))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("m.yaml", text)
	if err := os.Mkdir(filepath.Join(dir, "ws"), 0o755); err != nil {
		t.Fatal(err)
	}
	write("ws/reach.sh", reach+fmt.Sprintf(`allowed=%d other=%d
reach 127.0.0.1 $allowed
reach 127.0.0.1 $allowed
reach 127.0.0.2 $allowed
reach ::1 $allowed
reach 192.0.2.1 $allowed
reach 127.0.0.1 $other
reach 127.0.0.1 443
while read -r line; do echo "hosts: $line"; done </etc/hosts
exec 3<>/dev/tcp/api.example.com/443 && echo "GET / HTTP/1.0" >&3 && { read -t 10 line <&3; echo "not TLS: $? '$line'"; }
exec 3>&-
`, allowed, other))
	write("ws/command.sh", reach+fmt.Sprintf("reach 127.0.0.1 %d; reach 127.0.1.1 443\n", allowed))
	cmd := exec.CommandContext(t.Context(), builtSharness(t), "enforce", "-m", "m.yaml", "--workspace", "ws", "--events", "log", "--",
		"bash", "-c", ". ./reach.sh; sharness-bash -c '. ./command.sh'")
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	want := `127.0.0.1: read 'the endpoint'
127.0.0.1: read 'the endpoint'
127.0.0.2: Connection refused
::1: Connection refused
192.0.2.1: Network is unreachable
127.0.0.1: Permission denied
127.0.0.1: Connection refused
hosts: 127.0.0.1 localhost sharness
hosts: ::1 localhost
hosts: 127.0.1.1 api.example.com
hosts: 127.0.1.2 mcp.example.com
not TLS: 1 ''
127.0.0.1: Connection refused
127.0.1.1: Connection refused
`
	if got := stdout.String(); got != want {
		t.Errorf("got\n%swant\n%s%s", got, want, &stderr)
	}
	if visits() != 2 || intrusions() != 0 {
		t.Errorf("the endpoint had %d visitors and the other server %d, want 2 and 0", visits(), intrusions())
	}
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), `"type":"net.denied"`) || !strings.Contains(string(log), "api.example.com") {
		t.Errorf("no event of the connection without TLS:\n%s", log)
	}
}
