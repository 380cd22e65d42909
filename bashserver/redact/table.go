package redact

import "math/bits"

// table finds the places of a text at which something may begin. It looks at three bytes of each place, or of every
// second where all that is looked for is known four bytes deep. Letters count as lower case: bit 5 of every byte is set.
//
// What it costs is what the whole filter costs for most text. A multiplication spreads the three bytes over flag, which
// stays in the first cache; places go 24 at a time, without a branch among them.
type table struct {
	flag  [1 << flagBits]uint8 // 1: there is a slot, or one of the same hash
	slots []slot
	shift uint32
	pairs bool // every second place is enough
}

// slot is what may begin with three bytes.
type slot struct {
	gram    uint32
	used    bool
	targets []target
}

const (
	flagBits = 14
	spread   = 0x9E3779B1
	lower    = 0x2020202020202020
	block    = 24 // places that are looked at together
)

func (t *table) fill(found map[uint32][]target, pairs bool) {
	t.pairs = pairs
	size := bits.Len(uint(2*len(found) + 1))
	t.slots, t.shift = make([]slot, 1<<size), uint32(32-size)
	for g, targets := range found {
		t.flag[g<<8*spread>>(32-flagBits)] = 1
		i := g * spread >> t.shift
		for t.slots[i].used {
			i = (i + 1) % uint32(len(t.slots))
		}
		t.slots[i] = slot{g, true, targets}
	}
}

// lookup returns what may begin with the three lowest bytes of x.
func (t *table) lookup(x uint64) []target {
	g := uint32(x & 0xffffff)
	for i := g * spread >> t.shift; t.slots[i].used; i = (i + 1) % uint32(len(t.slots)) {
		if t.slots[i].gram == g {
			return t.slots[i].targets
		}
	}
	return nil
}

// at is the flag of three bytes.
func (t *table) at(x uint64) uint32 { return uint32(t.flag[uint32(x)<<8*spread>>(32-flagBits)]) }

// every says, a bit for each, which of the places of a block may be something.
func (t *table) every(p *[block + 2]byte) uint32 {
	return t.six(load(p[0:8])) | t.six(load(p[6:14]))<<6 | t.six(load(p[12:20]))<<12 | t.six(load(p[18:26]))<<18
}

func (t *table) six(x uint64) uint32 {
	return t.at(x) | t.at(x>>8)<<1 | t.at(x>>16)<<2 | t.at(x>>24)<<3 | t.at(x>>32)<<4 | t.at(x>>40)<<5
}

// even is every for the even places.
func (t *table) even(p *[block + 2]byte) uint32 {
	return t.three(load(p[0:8])) | t.three(load(p[6:14]))<<6 | t.three(load(p[12:20]))<<12 | t.three(load(p[18:26]))<<18
}

func (t *table) three(x uint64) uint32 { return t.at(x) | t.at(x>>16)<<2 | t.at(x>>32)<<4 }

func load(p []byte) uint64 {
	_ = p[7]
	return lower | (uint64(p[0]) | uint64(p[1])<<8 | uint64(p[2])<<16 | uint64(p[3])<<24 | uint64(p[4])<<32 | uint64(p[5])<<40 | uint64(p[6])<<48 | uint64(p[7])<<56)
}

// word is up to eight bytes of text, folded, and the mask of as many.
func word(b []byte) (x, mask uint64) {
	for i := range min(8, len(b)) {
		x |= uint64(b[i]|0x20) << (8 * i)
		mask |= 0xff << (8 * i)
	}
	return x, mask
}
