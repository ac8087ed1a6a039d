package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lockDevData locks a data directory until unlock is called or the process ends. A second development cluster in the
// directory would overwrite the kubeconfig and certificates of the first, and its etcd would silently wait for the
// first one's lock.
func lockDevData(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return func() { _ = f.Close() }, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("another clusterctl dev uses %s: end it, or name another --data", dir)
	}
	return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
}

// lastEtcdError returns the last error in etcd's log. It is reported at once, because the log is deleted with a
// temporary data directory.
func lastEtcdError(log string) string {
	f, err := os.Open(log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	reason := ""
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct{ Level, Msg, Error string }
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue
		}
		switch line.Level {
		case "error", "fatal", "panic":
			reason = line.Msg
			if line.Error != "" {
				reason += ": " + line.Error
			}
		}
	}
	return cmp.Or(reason, "see "+log)
}
