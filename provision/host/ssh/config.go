// Package ssh reaches machines: it logs in as OpenSSH would (keys, agent,
// ~/.ssh/config, known_hosts), becomes root, brings this very program there when its
// digest is not, and starts it as the agent. What is then asked is provision/agent's.
package ssh

import (
	"bufio"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"clusterctl/hcl/config"
)

// Target is where and as whom to log in, all defaults filled in.
type Target struct {
	Host       string
	Port       int
	User       string
	Keys       []string // paths, in order
	Jump       string
	Explicit   bool // the key was named: no other is tried
	KnownHosts []string
}

// Resolve fills in what a machine's ssh block does not say from ~/.ssh/config and
// OpenSSH's defaults. home is the user's.
func Resolve(m config.Machine, home string) (Target, error) {
	name := m.SSH.Host
	if name == "" {
		name = m.IP.String()
	}
	settings, err := readConfig(filepath.Join(home, ".ssh", "config"), name)
	if err != nil {
		return Target{}, err
	}
	t := Target{Host: name, User: m.SSH.User, Port: m.SSH.Port, Jump: m.SSH.Jump}
	if h := settings["hostname"]; len(h) > 0 {
		t.Host = strings.ReplaceAll(h[0], "%h", name)
	}
	if u := settings["user"]; t.User == "" && len(u) > 0 {
		t.User = u[0]
	}
	if t.User == "" {
		u, err := user.Current()
		if err != nil {
			return Target{}, fmt.Errorf("find out who you are, to log in as: %w", err)
		}
		t.User = u.Username
	}
	if p := settings["port"]; t.Port == 0 && len(p) > 0 {
		if t.Port, err = strconv.Atoi(p[0]); err != nil {
			return Target{}, fmt.Errorf("read ~/.ssh/config: port %q of %s is not a number", p[0], name)
		}
	}
	if t.Port == 0 {
		t.Port = 22
	}
	if j := settings["proxyjump"]; t.Jump == "" && len(j) > 0 && j[0] != "none" {
		t.Jump = j[0]
	}
	switch {
	case m.SSH.Key != "":
		t.Keys, t.Explicit = []string{m.SSH.Key}, true
	case len(settings["identityfile"]) > 0:
		for _, f := range settings["identityfile"] {
			t.Keys = append(t.Keys, expand(f, home))
		}
	default:
		for _, f := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
			t.Keys = append(t.Keys, filepath.Join(home, ".ssh", f))
		}
	}
	t.KnownHosts = []string{filepath.Join(home, ".ssh", "known_hosts")}
	if m.SSH.KnownHosts != "" {
		t.KnownHosts = []string{m.SSH.KnownHosts}
	} else if k := settings["userknownhostsfile"]; len(k) > 0 {
		t.KnownHosts = nil
		for _, f := range strings.Fields(k[0]) {
			t.KnownHosts = append(t.KnownHosts, expand(f, home))
		}
	}
	return t, nil
}

func expand(path, home string) string {
	path = strings.Trim(path, `"`)
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(home, rest)
	}
	return strings.ReplaceAll(path, "%d", home)
}

// readConfig returns the settings that apply to a host: as in OpenSSH, the first
// value found counts, except that identity files add up. Match blocks are left out.
func readConfig(path, name string) (map[string][]string, error) {
	settings := map[string][]string{}
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return settings, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	applies := true
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, _ := strings.Cut(strings.Replace(line, "=", " ", 1), " ")
		key, value = strings.ToLower(key), strings.TrimSpace(value)
		switch {
		case key == "host":
			applies = matches(strings.Fields(value), name)
		case key == "match":
			applies = false
		case applies && key == "identityfile":
			settings[key] = append(settings[key], value)
		case applies && settings[key] == nil:
			settings[key] = []string{value}
		}
	}
	return settings, lines.Err()
}

func matches(patterns []string, name string) bool {
	found := false
	for _, p := range patterns {
		negated := strings.HasPrefix(p, "!")
		if ok, err := filepath.Match(strings.TrimPrefix(p, "!"), name); err == nil && ok {
			if negated {
				return false
			}
			found = true
		}
	}
	return found
}

// Args are the arguments by which OpenSSH's client logs in in the same way.
func (t Target) Args() []string {
	args := []string{"-p", strconv.Itoa(t.Port), "-l", t.User}
	for _, k := range t.Keys {
		if _, err := os.Stat(k); err == nil {
			args = append(args, "-i", k)
		}
	}
	if t.Explicit {
		args = append(args, "-o", "IdentitiesOnly=yes")
	}
	if t.Jump != "" {
		args = append(args, "-J", t.Jump)
	}
	if len(t.KnownHosts) > 0 {
		args = append(args, "-o", "UserKnownHostsFile="+strings.Join(t.KnownHosts, " "))
	}
	return append(args, t.Host)
}
