package proxy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"clusterctl/daemons/config"
)

// conntrackFiles are the kernel's settings of its table of connections: a directory of sysctls, and the module's
// parameter that sets how many lists the table has.
type conntrackFiles struct{ sysctls, lists string }

var kernelConntrack = conntrackFiles{"/proc/sys/net/netfilter", "/sys/module/nf_conntrack/parameters/hashsize"}

// perList is how many connections a list of the table has on average, at most, when the table is full.
const perList = 4

// setConntrack sets how many connections the kernel tracks, and for how long. A table that is larger than asked for
// stays as it is; one that is made larger gets more lists, or each packet would search through long ones. Zeros leave
// what the kernel has. Half-closed connections are kept for an
// hour in place of a minute: a pod that sends for longer after its peer has closed would else send to an address that
// nothing translates back.
func setConntrack(files conntrackFiles, cfg *config.Proxy, cores int) error {
	var failures []error
	write := func(path string, value int64, atLeast bool) {
		if value <= 0 {
			return
		}
		text, err := os.ReadFile(path)
		if err != nil {
			failures = append(failures, fmt.Errorf("read %s: %w", path, err))
			return
		}
		if now, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && (now == value || atLeast && now > value) {
			return
		}
		if err := os.WriteFile(path, strconv.AppendInt(nil, value, 10), 0o644); err != nil {
			failures = append(failures, fmt.Errorf("set %s to %d: %w", path, value, err))
		}
	}
	set := func(name string, value int64, atLeast bool) {
		write(filepath.Join(files.sysctls, name), value, atLeast)
	}
	seconds := func(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
	if cfg.ConntrackMaxPerCore > 0 {
		most := max(int64(cfg.ConntrackMaxPerCore)*int64(cores), int64(cfg.ConntrackMin))
		set("nf_conntrack_max", most, true)
		write(files.lists, most/perList, true)
	}
	set("nf_conntrack_tcp_timeout_established", seconds(cfg.ConntrackTCPEstablished), false)
	set("nf_conntrack_tcp_timeout_close_wait", seconds(cfg.ConntrackTCPCloseWait), false)
	set("nf_conntrack_udp_timeout", seconds(cfg.ConntrackUDP), false)
	set("nf_conntrack_udp_timeout_stream", seconds(cfg.ConntrackUDPStream), false)
	if cfg.ConntrackTCPBeLiberal {
		set("nf_conntrack_tcp_be_liberal", 1, false)
	}
	return errors.Join(failures...)
}

// track sets the kernel's table of connections once. The files are there from when the first rules are. What cannot be
// set is reported and left: within a container, some of it belongs to the machine.
func (d *daemon) track() {
	if d.tracks {
		return
	}
	d.tracks = true
	if err := setConntrack(kernelConntrack, &d.cfg, runtime.NumCPU()); err != nil {
		d.env.Log.Warn("set how connections are tracked", "error", err)
	}
}
