package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
)

// recordName is the name of the record of prepared claims in the kubelet's directory.
const recordName = "prepared-claims.json"

// record is the content of the file.
type record struct {
	Version int              `json:"version"`
	Claims  []*preparedClaim `json:"claims"`
}

const recordVersion = 1

// readRecord reads the file. A missing file means that nothing was prepared yet.
func readRecord(path string) (map[types.UID]*preparedClaim, error) {
	out := map[types.UID]*preparedClaim{}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	} else if err != nil {
		return nil, fmt.Errorf("read which claims are prepared: %w", err)
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("read which claims are prepared, in %s: %w", path, err)
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("%s is of version %d, and this kubelet reads %d", path, r.Version, recordVersion)
	}
	for _, one := range r.Claims {
		if one.Drivers == nil {
			one.Drivers = map[string][]Device{}
		}
		out[one.UID] = one
	}
	return out, nil
}

// save writes the record atomically. After a crash the file has either the old or the new content.
func (m *Manager) save() error {
	m.saveMutex.Lock()
	defer m.saveMutex.Unlock()
	m.mu.Lock()
	r := record{Version: recordVersion, Claims: []*preparedClaim{}}
	for _, one := range m.claims {
		r.Claims = append(r.Claims, one)
	}
	raw, err := json.Marshal(r)
	m.mu.Unlock()
	if err != nil {
		return fmt.Errorf("encode which claims are prepared: %w", err)
	}
	if err := replaceFile(filepath.Join(m.Dir, recordName), raw); err != nil {
		return fmt.Errorf("write which claims are prepared: %w", err)
	}
	return nil
}

func replaceFile(path string, raw []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+recordName+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if _, err = f.Write(raw); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
