package stage

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/sharness/sharness/internal/confine"
)

func TestPlanCarriesBytesThatAreNotText(t *testing.T) {
	const name = "/ws/\xff\xfe"
	plan := func() *Plan {
		return &Plan{
			Mounts: []Mount{{Target: name, Bind: name, Absent: true}}, Links: []Link{{Path: name, Target: "text"}},
			Files:    []File{{Path: "/etc/\xff", Content: []byte{0, 0xff}}},
			Landlock: confine.Landlock{Paths: []confine.PathRule{{Path: name, Access: 1}}},
			Argv:     []string{"a\xff", "", "é"}, Env: []string{"X=\xff"}, CwdBelow: []string{name},
			Protected: &Protected{Root: name, Entries: []ProtectedEntry{{Rel: []byte("\xff")}}},
		}
	}
	data, err := plan().Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(data) {
		t.Fatalf("not JSON: %q", data)
	}
	fd, err := SealedMemfd("plan", data)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readPlan(fd)
	if err != nil {
		t.Fatal(err)
	}
	if want := plan(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if _, err := (&Plan{Cwd: bytesMark}).Encode(); err == nil {
		t.Error("a string that looks like the mark was taken")
	}
}
