package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"k8s.io/apimachinery/pkg/types"
)

// staticRecord records the static pods of the manifest directory across restarts of the kubelet. A missing or
// overmounted directory, or a broken manifest, must not end a pod. The record identifies the pods that are kept then.
type staticRecord struct {
	Device uint64               `json:"device"` // device and inode of the directory
	Inode  uint64               `json:"inode"`
	Pods   map[string]types.UID `json:"pods"` // by manifest path, the last version that could be read
}

// recordDir is the directory of the record of static pods.
type recordDir string

func (d recordDir) path() string { return filepath.Join(string(d), "static-pods.json") }

// load reads the record of the previous kubelet. It returns false if there is none.
func (d recordDir) load() (r staticRecord, found bool, err error) {
	data, err := os.ReadFile(d.path())
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return r, false, fmt.Errorf("read which static pods there were: %w", err)
	}
	return r, true, nil
}

func (d recordDir) save(r staticRecord) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(d), 0o750); err != nil {
		return fmt.Errorf("keep which static pods there are: %w", err)
	}
	if err := d.write(data); err != nil {
		return fmt.Errorf("keep which static pods there are: %w", err)
	}
	return nil
}

// write writes the record durably. A record that is corrupt after a power loss would keep every static pod from
// starting.
func (d recordDir) write(data []byte) error {
	f, err := os.OpenFile(d.path()+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), d.path()); err != nil {
		return err
	}
	dir, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// directoryIdentity returns the device and inode of a directory.
func directoryIdentity(dir string) (device, inode uint64, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, fmt.Errorf("read %s: the system does not say which directory it is", dir)
	}
	return uint64(st.Dev), st.Ino, nil
}
