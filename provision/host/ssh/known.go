package ssh

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// ErrHostKey is that a machine did not show the key that it is known by.
var ErrHostKey = errors.New("host key")

// known checks host keys against known_hosts files and, with accept, writes down
// those of hosts that are not in them. A changed key is never accepted.
type known struct {
	files  []string
	accept bool
}

// appending keeps two machines' first connections from writing at once.
var appending sync.Mutex

func (k known) check(hostname string, remote net.Addr, key ssh.PublicKey) error {
	var present []string
	for _, f := range k.files {
		if _, err := os.Stat(f); err == nil {
			present = append(present, f)
		}
	}
	appending.Lock()
	check, err := knownhosts.New(present...)
	appending.Unlock()
	if err != nil {
		return fmt.Errorf("read known hosts: %w", err)
	}
	err = check(hostname, remote, key)
	var problem *knownhosts.KeyError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &problem):
		return fmt.Errorf("%w of %s: %w", ErrHostKey, hostname, err)
	case len(problem.Want) > 0:
		w := problem.Want[0]
		return fmt.Errorf("%w of %s has changed: it is now %s %s, and %s line %d has another. Either the machine was installed anew or someone is in between. "+
			"When you know why, remove the old key with: ssh-keygen -R '%s'",
			ErrHostKey, hostname, key.Type(), ssh.FingerprintSHA256(key), w.Filename, w.Line, knownhosts.Normalize(hostname))
	case !k.accept:
		return fmt.Errorf("%w of %s is not known: it is %s %s. Compare it with the machine's own, then either log in once with ssh or run again with -accept-new-host-keys",
			ErrHostKey, hostname, key.Type(), ssh.FingerprintSHA256(key))
	}
	return k.write(hostname, key)
}

func (k known) write(hostname string, key ssh.PublicKey) error {
	appending.Lock()
	defer appending.Unlock()
	if len(k.files) == 0 {
		return errors.New("there is no known_hosts file to write to")
	}
	path := k.files[0]
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write down the key of %s: %w", hostname, err)
	}
	_, err = fmt.Fprintln(f, knownhosts.Line([]string{knownhosts.Normalize(hostname)}, key))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// algorithms returns the host key algorithms to ask for, those by which the host is
// known first, so that a host with several keys shows the one we have.
func (k known) algorithms(hostname string) []string {
	var known []string
	for _, f := range k.files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for line := range bytes.Lines(text) {
			fields := strings.Fields(string(line))
			if len(fields) < 3 || strings.HasPrefix(fields[0], "#") {
				continue
			}
			for _, h := range strings.Split(fields[0], ",") {
				if h == knownhosts.Normalize(hostname) || strings.HasPrefix(h, "|1|") && hashedMatch(h, hostname) {
					known = append(known, fields[1])
				}
			}
		}
	}
	if len(known) == 0 {
		return nil
	}
	var list []string
	for _, k := range known {
		if k == ssh.KeyAlgoRSA {
			list = append(list, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		} else {
			list = append(list, k)
		}
	}
	return list
}

func hashedMatch(entry, hostname string) bool {
	parts := strings.Split(entry, "|")
	if len(parts) != 4 {
		return false
	}
	salt, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil {
		return false
	}
	return hashHost(salt, knownhosts.Normalize(hostname)) == parts[3]
}
