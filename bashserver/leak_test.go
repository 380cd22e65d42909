package bashserver

import (
	"os"
	"testing"
)

// descriptors counts this process's: a leak shows as a difference.
func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// settled counts them once the server is up and has nothing to do.
func (s *supervisor) settled(t *testing.T) int {
	t.Helper()
	s.output("-c", "true")
	eventually(t, "first connection closed", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.done[1] })
	return descriptors(t)
}

func TestCommandsLeaveNothingBehind(t *testing.T) {
	s := start(t, Config{}, inProcess)
	before := s.settled(t)
	for range 20 {
		s.output("-c", "echo x; exit 3")
		s.output("--json", "-c", "echo x")
	}
	eventually(t, "descriptors closed", func() bool { return descriptors(t) <= before })
}
