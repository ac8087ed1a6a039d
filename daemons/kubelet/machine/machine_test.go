package machine

import (
	"os"
	"path/filepath"
	"testing"

	"clusterctl/daemons/kubelet/cgroup"
)

// tree writes files below a new directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestProcessCapacityIsTheSmallestLimit(t *testing.T) {
	for name, row := range map[string]struct {
		pids, threads  string
		groups         map[string]string
		used, capacity int64
	}{
		"process ids":        {"32768", "127000", nil, 500, 32768},
		"the kernel's tasks": {"4194304", "127000", nil, 500, 127000},
		"no limit of a group": {"32768", "127000", map[string]string{"cgroup.controllers": "pids",
			"kubepods/pids.current": "40", "kubepods/pids.max": "max"}, 500, 32768},
		"the group of pods": {"32768", "127000", map[string]string{"cgroup.controllers": "pids",
			"kubepods/pids.current": "40", "kubepods/pids.max": "1000"}, 40, 1000},
		"the machine's group": {"32768", "127000", map[string]string{"cgroup.controllers": "pids",
			"pids.current": "400", "pids.max": "900", "kubepods/pids.current": "40", "kubepods/pids.max": "1000"}, 400,
			900},
		"a group of version 1": {"32768", "127000", map[string]string{"pids/cgroup.procs": "",
			"pids/kubepods/pids.current": "40", "pids/kubepods/pids.max": "1000"}, 40, 1000},
		"more than there are": {"32768", "127000", map[string]string{"cgroup.controllers": "pids",
			"kubepods/pids.current": "40", "kubepods/pids.max": "50000"}, 500, 32768},
	} {
		l := Local{procfs: tree(t, map[string]string{"sys/kernel/pid_max": row.pids,
			"sys/kernel/threads-max": row.threads, "loadavg": "0.1 0.2 0.3 2/500 1234"}),
			Cgroups: &cgroup.Manager{Mount: tree(t, row.groups)}}
		used, capacity, err := l.Processes()
		if err != nil || used != row.used || capacity != row.capacity {
			t.Errorf("%s: %d of %d, %v; want %d of %d", name, used, capacity, err, row.used, row.capacity)
		}
	}
}
