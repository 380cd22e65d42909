package wire

import (
	"errors"
	"os"
	"testing"
	"time"
)

// fill sends until nothing more goes into the socket itself.
func fill(t *testing.T, r *RecordConn) (n uint64) {
	t.Helper()
	for r.mu.Lock(); !r.draining; r.mu.Lock() {
		r.mu.Unlock()
		n++
		if err := r.Send(Record{Type: RecDone, ID: n}); err != nil {
			t.Fatal(err)
		}
	}
	r.mu.Unlock()
	return n
}

func TestSendDoesNotWaitAndKeepsTheOrder(t *testing.T) {
	a, b := recordPair(t)
	before := openFDs(t)
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	const last = 2000
	begun := time.Now()
	for id := uint64(1); id <= last; id++ {
		if err := a.Send(Record{Type: RecStart, ID: id}, int(null.Fd())); err != nil {
			t.Fatalf("record %d: %v", id, err)
		}
		if id == last/2 {
			break
		}
	}
	null.Close() // what waits has descriptors of its own
	for id := uint64(last/2 + 1); id <= last; id++ {
		if err := a.Send(Record{Type: RecDone, ID: id}); err != nil {
			t.Fatalf("record %d: %v", id, err)
		}
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("took %v", took)
	}
	for id := uint64(1); id <= last; id++ {
		r, fds, err := b.Recv()
		if err != nil || r.ID != id || (len(fds) == 1) != (id <= last/2) {
			t.Fatalf("record %d: got %+v with %d descriptors, %v", id, r, len(fds), err)
		}
		CloseAll(fds)
	}
	for end := time.Now().Add(5 * time.Second); openFDs(t) > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors before, %d after", before, openFDs(t))
		}
	}
}

func TestSendGoesDirectlyAgainOnceTheQueueIsEmpty(t *testing.T) {
	a, b := recordPair(t)
	for range 3 {
		for range fill(t, a) {
			if _, _, err := b.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		for idle := false; !idle; {
			a.mu.Lock()
			idle = !a.draining
			a.mu.Unlock()
		}
	}
}

func TestFullQueueRefusesWhatCanBeDoneWithout(t *testing.T) {
	a, b := recordPair(t)
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	before := openFDs(t)
	taken := 0
	for err = nil; err == nil; taken++ {
		err = a.Send(Record{Type: RecConn, ID: 1}, int(null.Fd()))
	}
	if !errors.Is(err, ErrBusy) || taken > 8*maxOptional {
		t.Fatalf("got %v after %d, want to be busy", err, taken)
	}
	if err := a.Send(Record{Type: RecHint, ID: 1}); !errors.Is(err, ErrBusy) {
		t.Errorf("hint: got %v", err)
	}
	for range maxQueue - maxOptional - 1 {
		if err := a.Send(Record{Type: RecEnded, ID: 2}); err != nil {
			t.Fatalf("what cannot be done without: %v", err)
		}
	}
	for err = nil; err == nil; {
		err = a.Send(Record{Type: RecEnded, ID: 2})
	}
	if !errors.Is(err, errDeaf) {
		t.Errorf("got %v, want the connection closed", err)
	}
	if _, _, err := a.Recv(); !errors.Is(err, errDeaf) {
		t.Errorf("Recv: got %v, want the reason", err)
	}
	b.Close()
	for end := time.Now().Add(5 * time.Second); openFDs(t) >= before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors before, %d after", before, openFDs(t)) // two sockets fewer
		}
	}
}

func TestPeerThatDoesNotReadIsDropped(t *testing.T) {
	a, _ := recordPair(t)
	a.patience = 50 * time.Millisecond
	fill(t, a)
	if _, _, err := a.Recv(); !errors.Is(err, errDeaf) {
		t.Errorf("Recv: got %v, want the reason", err)
	}
	if err := a.Send(Record{Type: RecDone}); !errors.Is(err, errDeaf) {
		t.Errorf("Send: got %v, want the reason", err)
	}
}

func TestPeerThatReadsSlowlyIsNotDropped(t *testing.T) {
	a, b := recordPair(t)
	a.patience = time.Second
	fill(t, a)
	for id := range uint64(40) {
		if err := a.Send(Record{Type: RecDone, ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	for range 40 {
		time.Sleep(50 * time.Millisecond) // the slowness is what is tested
		if _, _, err := b.Recv(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCloseEndsASendThatWaits(t *testing.T) {
	a, _ := recordPair(t)
	fill(t, a)
	begun := time.Now()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	for end := begun.Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		a.mu.Lock()
		idle := !a.draining
		a.mu.Unlock()
		if idle {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the writer is still there")
		}
	}
}

// Two ends that both have much to say, and answer what they hear, must not wait for each other.
func TestBothEndsMaySendAtOnce(t *testing.T) {
	a, b := recordPair(t)
	const n = 1000
	done := make(chan error, 2)
	for _, r := range []*RecordConn{a, b} {
		go func() {
			for id := range uint64(n) {
				if err := r.Send(Record{Type: RecDone, ID: id}); err != nil {
					done <- err
					return
				}
			}
			for range n {
				if _, _, err := r.Recv(); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 2 {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("both wait")
		}
	}
}
