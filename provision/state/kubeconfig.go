package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"clusterctl/certs"
)

// IssuedKubeconfig is a kubeconfig that was given to a user.
type IssuedKubeconfig struct {
	Name      string    `json:"name"`
	Groups    []string  `json:"groups,omitempty"`
	Serial    string    `json:"serial"` // hexadecimal
	At        time.Time `json:"at"`
	Until     time.Time `json:"until"`
	Authority string    `json:"authority"` // the signing authority, as returned by certs.KeyID
}

// kubeconfigsFile has one JSON object per line. It is separate from the state's file, so that a kubeconfig can be
// issued while a run holds the lock, and so that saved plans stay valid.
const kubeconfigsFile = "kubeconfigs.jsonl"

// RecordKubeconfig records, in the state's directory, that a kubeconfig is about to be given to a user.
func RecordKubeconfig(dir string, h IssuedKubeconfig) error {
	line, err := json.Marshal(h)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, kubeconfigsFile), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("write down who gets a kubeconfig: %w", err)
	}
	err = appendLine(f, line)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("write down who gets a kubeconfig: %w", err)
	}
	return nil
}

// appendLine appends a line with one write. If an earlier write left an incomplete line, appendLine terminates it
// first.
func appendLine(f *os.File, line []byte) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	last := []byte{'\n'}
	if size > 0 {
		if _, err := f.ReadAt(last, size-1); err != nil {
			return err
		}
	}
	line = append(line, '\n')
	if last[0] != '\n' {
		line = append([]byte{'\n'}, line...)
	}
	if _, err := f.Write(line); err != nil {
		return err
	}
	return f.Sync()
}

// IssuedKubeconfigs returns the recorded kubeconfigs, oldest first.
func IssuedKubeconfigs(dir string) (list []IssuedKubeconfig, err error) {
	path := filepath.Join(dir, kubeconfigsFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read who was given kubeconfigs: %w", err)
	}
	for _, line := range bytes.Split(text, []byte{'\n'}) {
		var h IssuedKubeconfig
		if len(line) == 0 {
			continue
		}
		if json.Unmarshal(line, &h) != nil {
			continue // its write was interrupted, so that kubeconfig was not given to the user
		}
		list = append(list, h)
	}
	return list, nil
}

// HasRevoked reports whether a kubeconfig's certificate was revoked.
func (s *State) HasRevoked(h IssuedKubeconfig) bool {
	for _, r := range s.Revoked {
		if r.CA == certs.ClusterCA && r.Serial == h.Serial {
			return true
		}
	}
	return false
}

// DependOnFormerCA returns the kubeconfigs that stop working when the former cluster CA is dropped.
func (s *State) DependOnFormerCA(list []IssuedKubeconfig, now time.Time) (formers []IssuedKubeconfig) {
	former := certs.KeyID(s.Rotations[certs.ClusterCA].Peer)
	if s.Rotations[certs.ClusterCA].Phase != PhaseIssue || former == "" {
		return nil
	}
	for _, h := range list {
		if h.Authority == former && now.Before(h.Until) && !s.HasRevoked(h) {
			formers = append(formers, h)
		}
	}
	return formers
}

// HasSigned reports whether an authority that the cluster trusts has signed a kubeconfig's certificate.
func (s *State) HasSigned(h IssuedKubeconfig) bool {
	return s.IsKnownAuthority(certs.ClusterCA, func(pem []byte) bool { return certs.KeyID(pem) == h.Authority })
}
