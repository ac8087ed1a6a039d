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

// conntrackFiles are the files that configure the kernel's connection tracking table: the directory of its sysctls, and
// the module parameter with the number of hash buckets.
type conntrackFiles struct{ sysctls, buckets string }

var kernelConntrack = conntrackFiles{"/proc/sys/net/netfilter", "/sys/module/nf_conntrack/parameters/hashsize"}

// perBucket is the average number of connections in a hash bucket when the table is full.
const perBucket = 4

// setConntrack sets the size of the connection tracking table and its timeouts. It never shrinks the table. A larger
// table also gets more hash buckets, because long bucket lists would slow down every packet. Zero values leave the
// kernel's settings unchanged.
//
// Half-closed connections are kept for an hour instead of a minute. Otherwise a pod that keeps sending after its peer
// has closed would send to an address that is no longer translated.
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
		if now, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil &&
			(now == value || atLeast && now > value) {
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
		maximum := max(int64(cfg.ConntrackMaxPerCore)*int64(cores), int64(cfg.ConntrackMin))
		set("nf_conntrack_max", maximum, true)
		write(files.buckets, maximum/perBucket, true)
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

// configureConntrack configures the connection tracking table once, after the first rules exist, because they load the
// module. Failures are only logged: in a container, some of these settings belong to the machine.
func (d *daemon) configureConntrack() {
	if d.isConntrackSet {
		return
	}
	d.isConntrackSet = true
	if err := setConntrack(kernelConntrack, &d.cfg, runtime.NumCPU()); err != nil {
		d.env.Log.Warn("set how connections are tracked", "error", err)
	}
}
