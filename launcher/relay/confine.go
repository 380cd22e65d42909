package relay

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/confine"
)

// The ABIs that matter for the relay's own network rules.
const (
	firstNetABI    = 4
	firstScopedABI = 6
	// From ABI 10 on Landlock handles UDP as well, and confine has no rule that would leave the resolver its queries.
	lastTCPOnlyABI = 9
)

const dnsPort = 53

// resolvConf says where the name servers are. Whoever writes it replaces it, by rename: a rule for the file would be one
// for the file that used to be there.
const resolvConf = "/etc/resolv.conf"

// Drop is what the relay gives up before it serves. It keeps the reading of files in /etc and where resolv.conf points
// to, as a user of its own: the resolver reads resolv.conf, hosts and nsswitch.conf anew when they change. It keeps TCP
// connections to the upstreams' ports and the name servers'. UDP is left to its user's packets: Landlock cannot tell
// DNS from other UDP. keep lists the descriptors that it was started with.
func (c Config) Drop(keep []int) (confine.Drop, error) {
	ports := []uint16{dnsPort}
	for _, e := range c.Endpoints {
		_, port, err := e.upstream()
		if err != nil {
			return confine.Drop{}, err
		}
		ports = append(ports, port)
	}
	if c.Learn != nil {
		ports = append(ports, c.Learn.Ports...)
	}
	slices.Sort(ports)
	dirs := []string{filepath.Dir(resolvConf)}
	target, err := filepath.EvalSymlinks(resolvConf)
	switch {
	case err == nil:
		if dir := filepath.Dir(target); dir != dirs[0] {
			dirs = append(dirs, dir)
		}
	case !os.IsNotExist(err): // without one the resolver asks a name server on this host
		return confine.Drop{}, fmt.Errorf("relay: %w", err)
	}
	layer := confine.Landlock{ABI: min(c.LandlockABI, lastTCPOnlyABI), FS: true}
	for _, dir := range dirs {
		layer.Paths = append(layer.Paths, confine.PathRule{Path: dir, Access: unix.LANDLOCK_ACCESS_FS_READ_FILE})
	}
	if layer.ABI >= firstNetABI {
		layer.Net, layer.TCP = true, slices.Compact(ports)
	}
	if layer.ABI >= firstScopedABI {
		layer.Scoped = true
	}
	return confine.Drop{Keep: keep, Landlock: layer, Seccomp: c.Seccomp}, nil
}
