package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Directory is a Store whose folders are subdirectories. Files are replaced atomically.
type Directory string

// temporaryPrefix is the name prefix of files that are being written.
const temporaryPrefix = "."

// Read implements Store.
func (d Directory) Read(folder, name string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(string(d), folder, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Write implements Store.
func (d Directory) Write(folder, name string, data []byte) error {
	dir := filepath.Join(string(d), folder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, temporaryPrefix+name)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// Remove implements Store.
func (d Directory) Remove(folder, name string) error {
	if err := os.Remove(filepath.Join(string(d), folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// List implements Store. It removes incomplete files that a killed process has left.
func (d Directory) List(folder string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(string(d), folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), temporaryPrefix) {
			err = errors.Join(err, d.Remove(folder, e.Name()))
			continue
		}
		names = append(names, e.Name())
	}
	return names, err
}

// Memory is a Store in memory. The zero value is empty.
type Memory struct {
	mu    sync.Mutex
	files map[[2]string][]byte // by folder and name
}

// Read implements Store.
func (m *Memory) Read(folder, name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.files[[2]string{folder, name}], nil
}

// Write implements Store.
func (m *Memory) Write(folder, name string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files == nil {
		m.files = map[[2]string][]byte{}
	}
	m.files[[2]string{folder, name}] = data
	return nil
}

// Remove implements Store.
func (m *Memory) Remove(folder, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, [2]string{folder, name})
	return nil
}

// List implements Store.
func (m *Memory) List(folder string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for key := range m.files {
		if key[0] == folder {
			names = append(names, key[1])
		}
	}
	slices.Sort(names)
	return names, nil
}
