package bashserver

// matcher finds every occurrence of every secret in one pass (Aho and Corasick, 1975). It is made once and never
// changes; each stream keeps its own state number.
type matcher struct {
	secrets []Secret
	nodes   []node
	root    [256]int32 // children of the root, 0 where there is none: most output stays at the root
}

// node stands for a prefix of a secret. Node 0 is the root.
type node struct {
	child, sibling int32 // 0: none
	fail           int32 // node of the longest proper suffix that is a prefix too
	depth          int32
	hit            int32 // 1 + the longest secret that ends here; 0: none
	b              byte
}

func newMatcher(secrets []Secret) *matcher {
	m := &matcher{secrets: secrets, nodes: make([]node, 1)}
	for i, s := range secrets {
		at := int32(0)
		for _, b := range []byte(s.Value) {
			at = m.grow(at, b)
		}
		m.nodes[at].hit = int32(i + 1)
	}
	for n := m.nodes[0].child; n != 0; n = m.nodes[n].sibling {
		m.root[m.nodes[n].b] = n
	}
	// Breadth first: a node's fail and hit are taken from nodes nearer to the root.
	queue := []int32{0}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for n := m.nodes[at].child; n != 0; n = m.nodes[n].sibling {
			if at != 0 {
				m.nodes[n].fail = m.step(m.nodes[at].fail, m.nodes[n].b)
			}
			if m.nodes[n].hit == 0 {
				m.nodes[n].hit = m.nodes[m.nodes[n].fail].hit
			}
			queue = append(queue, n)
		}
	}
	return m
}

// grow returns the child of at for b, made if it is not there.
func (m *matcher) grow(at int32, b byte) int32 {
	for n := m.nodes[at].child; n != 0; n = m.nodes[n].sibling {
		if m.nodes[n].b == b {
			return n
		}
	}
	n := int32(len(m.nodes))
	m.nodes = append(m.nodes, node{sibling: m.nodes[at].child, depth: m.nodes[at].depth + 1, b: b})
	m.nodes[at].child = n
	return n
}

// step is the state after b.
func (m *matcher) step(at int32, b byte) int32 {
	for at != 0 {
		for n := m.nodes[at].child; n != 0; n = m.nodes[n].sibling {
			if m.nodes[n].b == b {
				return n
			}
		}
		at = m.nodes[at].fail
	}
	return m.root[b]
}

// proper leaves a state that is a whole secret and the beginning of none other for the longest suffix that can still
// grow: the depth of what it returns is how many bytes may yet turn out to be part of a secret.
func (m *matcher) proper(at int32) int32 {
	for at != 0 && m.nodes[at].child == 0 {
		at = m.nodes[at].fail
	}
	return at
}
