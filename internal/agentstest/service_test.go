//go:build agents

package agentstest

import (
	"net"
	"sync/atomic"
	"testing"
)

// service stands for whatever listens on the loopback interface of a developer's machine.
type service struct {
	port int
	hits atomic.Int64
}

func (s *service) count() int64 { return s.hits.Load() }

func listen(t *testing.T) *service {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := &service{port: l.Addr().(*net.TCPAddr).Port}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.hits.Add(1)
			c.Close()
		}
	}()
	return s
}
