package manifest

import (
	"errors"
	"math/bits"
	"reflect"
	"regexp"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	wantSize    = "a whole number above 0 with a unit: B, KiB, MiB, GiB or TiB"
	wantTimeout = "a time with a unit, such as 90s, 10m or 2h, or none"
	wantPercent = "a whole number above 0 and %, such as 50% or 200% (two processors)"
	wantTime    = "a time such as 2026-01-31T18:00:00Z"
)

// The units of a Size.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
	TiB Size = 1 << 40
)

var units = []struct {
	name string
	size Size
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", 1}}

// String writes s with the largest unit that keeps it whole.
func (s Size) String() string {
	for _, u := range units {
		if s%u.size == 0 && (s > 0 || u.size == 1) {
			return strconv.FormatUint(uint64(s/u.size), 10) + u.name
		}
	}
	panic("manifest: unreachable: one byte divides every size")
}

var sizeText = regexp.MustCompile(`^([0-9]+)(B|KiB|MiB|GiB|TiB)$`)

// ParseSize reads a size as the manifest has it.
func ParseSize(s string) (Size, error) {
	size, ok := parseSize(s)
	if !ok {
		return 0, errors.New(found(strconv.Quote(s), wantSize))
	}
	return size, nil
}

func parseSize(s string) (Size, bool) {
	part := sizeText.FindStringSubmatch(s)
	if part == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(part[1], 10, 63)
	if err != nil {
		return 0, false
	}
	for _, u := range units {
		if u.name == part[2] {
			// Past 63 bits a limit would turn negative in the kernel's files.
			over, product := bits.Mul64(n, uint64(u.size))
			return Size(product), over == 0 && product <= 1<<63-1 && product > 0
		}
	}
	return 0, false
}

// String writes t as the manifest does: "none", or a duration.
func (t Timeout) String() string {
	if t == TimeoutNone {
		return "none"
	}
	s := time.Duration(t).String()
	// Duration writes 10m as 10m0s; the form a person would write is read back as the same value.
	if n := len(s); n > 2 && s[n-2:] == "0s" && s[n-3] == 'm' {
		s = s[:n-2]
	}
	if n := len(s); n > 2 && s[n-2:] == "0m" && s[n-3] == 'h' {
		s = s[:n-2]
	}
	return s
}

func parseTimeout(s string) (Timeout, bool) {
	if s == "none" {
		return TimeoutNone, true
	}
	t, err := time.ParseDuration(s)
	// Under a millisecond no command could even start.
	return Timeout(t), err == nil && t >= time.Millisecond
}

// String writes p as the manifest does.
func (p Percent) String() string { return strconv.FormatUint(uint64(p), 10) + "%" }

var percentText = regexp.MustCompile(`^([1-9][0-9]{0,5})%$`)

func parsePercent(s string) (Percent, bool) {
	part := percentText.FindStringSubmatch(s)
	if part == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(part[1], 10, 32)
	return Percent(n), err == nil
}

// unit decodes the scalars that carry a unit.
func (d *decoder) unit(n *yaml.Node, v reflect.Value, key string) error {
	scalar := n.Kind == yaml.ScalarNode
	switch v.Interface().(type) {
	case Size:
		s, ok := parseSize(n.Value)
		if !scalar || !ok {
			return d.errorf(n, key, "%s", found(describe(n), wantSize))
		}
		v.SetUint(uint64(s))
	case Timeout:
		t, ok := parseTimeout(n.Value)
		if !scalar || !ok {
			return d.errorf(n, key, "%s", found(describe(n), wantTimeout))
		}
		v.SetInt(int64(t))
	case Percent:
		p, ok := parsePercent(n.Value)
		if !scalar || !ok {
			return d.errorf(n, key, "%s", found(describe(n), wantPercent))
		}
		v.SetUint(uint64(p))
	case time.Time:
		t, err := time.Parse(time.RFC3339Nano, n.Value)
		if t = t.UTC(); !scalar || err != nil || t.Year() < 1970 || t.Year() > 9999 {
			return d.errorf(n, key, "%s", found(describe(n), wantTime))
		}
		v.Set(reflect.ValueOf(t))
	}
	return nil
}
