// Package ssh reaches machines. It logs in as OpenSSH's client does (~/.ssh/config, keys, certificates, agent,
// known_hosts, jump hosts, proxy commands). It becomes root, sends clusterctl to the machine if this version is missing
// there, and starts it as the agent. Package agent defines the protocol.
package ssh

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"clusterctl/hcl/config"
)

// Target describes where, as which user and how to log in, with all defaults filled in.
type Target struct {
	Name         string // as given, before HostName is applied
	Host         string
	Port         int
	User         string
	Keys         []string // paths of private or public keys, in the order in which they are tried
	Certificates []string
	Explicit     bool // the machine's block names the key, which must exist
	OnlyKeys     bool // use only those of the agent's keys that are in Keys
	NoKeys       bool // PubkeyAuthentication no
	Agent        string
	Jumps        []string // [user@]host[:port], in the order in which they are passed through
	Proxy        string   // a command that connects to the machine's sshd

	KnownHosts []string // new keys are added to the first
	Global     []string
	Alias      string // the name by which host keys are looked up
	Revoked    string // a file of revoked keys
	Strict     string // yes, ask, accept-new or no
	Hash       bool   // hash the names of added hosts

	HostKeys, Ciphers, MACs, Exchanges, Authorities algorithms

	Network, Bind         string
	Connect, Alive        time.Duration // zero means our own default
	AliveCount            int
	strictAt, connectedBy string // position of the setting
}

// Files are the locations of the SSH configuration. Empty fields mean OpenSSH's defaults.
type Files struct {
	Home   string // empty means the user's home directory
	User   string // empty means .ssh/config in Home
	System string // empty means /etc/ssh/ssh_config
}

func (f Files) orUsual() (Files, error) {
	if f.Home == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return f, fmt.Errorf("find your home directory: %w", err)
		}
		f.Home = home
	}
	f.User, f.System = or(f.User, filepath.Join(f.Home, ".ssh", "config")), or(f.System, "/etc/ssh/ssh_config")
	return f, nil
}

var defaultKeys = []string{"id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"}

// Resolve returns how to log in to a machine. Settings come from its ssh block, then ~/.ssh/config, then the system's
// configuration, then OpenSSH's defaults.
func Resolve(m config.Machine, f Files, getenv func(string) string) (Target, error) {
	f, err := f.orUsual()
	if err != nil {
		return Target{}, err
	}
	who, err := whoAmI(f.Home, getenv)
	if err != nil {
		return Target{}, err
	}
	name := m.SSH.Host
	if name == "" {
		name = m.IP.String()
	}
	r := newReading(name, who)
	// Values of the block take precedence, like command-line arguments of ssh.
	block := func(key, value string) {
		if value != "" {
			r.values[key] = said{words: []string{value}, at: "the machine's ssh block"}
		}
	}
	block("user", m.SSH.User)
	block("proxyjump", m.SSH.Jump)
	if m.SSH.Port != 0 {
		block("port", strconv.Itoa(m.SSH.Port))
	}
	if m.SSH.KnownHosts != "" {
		block("userknownhostsfile", strings.NewReplacer("%", "%%").Replace(m.SSH.KnownHosts))
	}
	if err := r.read(f); err != nil {
		return Target{}, err
	}
	t, err := r.target()
	if m.SSH.Key != "" {
		t.Keys, t.Certificates, t.Explicit, t.OnlyKeys = []string{m.SSH.Key}, nil, true, true
	}
	return t, err
}

// target builds the Target from the values that were read.
func (r *reading) target() (t Target, err error) {
	if t.Host, err = r.hostName(); err != nil {
		return t, err
	}
	t.Name, t.User = r.name, or(r.values["user"].first(), r.who.user)
	if t.Port, err = r.number("port", 22); err != nil {
		return t, err
	}
	if t.Port < 1 || t.Port > 65535 {
		return t, fmt.Errorf("%s: %d is not a port", r.values["port"].at, t.Port)
	}
	for _, step := range []func(*Target) error{r.route, r.keys, r.hostKeys, r.patience} {
		if err := step(&t); err != nil {
			return t, err
		}
	}
	for key, list := range map[string]*algorithms{
		"hostkeyalgorithms": &t.HostKeys, "ciphers": &t.Ciphers, "macs": &t.MACs, "kexalgorithms": &t.Exchanges,
		"casignaturealgorithms": &t.Authorities,
	} {
		if s, ok := r.values[key]; ok {
			*list = algorithms{said: s.first(), at: s.at}
		}
	}
	return t, nil
}

// route sets how to connect to the machine.
func (r *reading) route(t *Target) (err error) {
	if s, ok := r.values["proxyjump"]; ok && !strings.EqualFold(s.first(), "none") {
		t.Jumps, t.connectedBy = strings.Split(s.first(), ","), s.at
	}
	if s, ok := r.values["proxycommand"]; ok && !strings.EqualFold(s.first(), "none") {
		if t.Proxy, err = r.tokens(t.Host).expand(s.first()); err != nil {
			return fmt.Errorf("%s: ProxyCommand: %w", s.at, err)
		}
		t.connectedBy = s.at
	}
	t.Network, t.Bind = "tcp", r.values["bindaddress"].first()
	if s, ok := r.values["addressfamily"]; ok {
		networks := map[string]string{"any": "tcp", "inet": "tcp4", "inet6": "tcp6"}
		if t.Network = networks[strings.ToLower(s.first())]; t.Network == "" {
			return fmt.Errorf("%s: AddressFamily %q is none of any, inet and inet6", s.at, s.first())
		}
	}
	return nil
}

// keys sets the keys to log in with.
func (r *reading) keys(t *Target) (err error) {
	if t.OnlyKeys, err = r.yes("identitiesonly", false); err != nil {
		return err
	}
	on, err := r.yes("pubkeyauthentication", true)
	if s := r.values["pubkeyauthentication"].first(); err != nil && (s == "unbound" || s == "host-bound") {
		on, err = true, nil
	}
	if t.NoKeys = !on; err != nil {
		return err
	}
	if t.Keys, err = r.files(r.identities, t.Host); err != nil {
		return err
	}
	if len(r.identities) == 0 {
		for _, f := range defaultKeys {
			t.Keys = append(t.Keys, filepath.Join(r.who.home, ".ssh", f))
		}
	}
	if t.Certificates, err = r.files(r.certificates, t.Host); err != nil {
		return err
	}
	t.Agent = r.who.getenv("SSH_AUTH_SOCK")
	s, ok := r.values["identityagent"]
	switch {
	case !ok || s.first() == "SSH_AUTH_SOCK":
	case strings.EqualFold(s.first(), "none"):
		t.Agent = ""
	case strings.HasPrefix(s.first(), "$") && !strings.HasPrefix(s.first(), "${"):
		t.Agent = r.who.getenv(s.first()[1:])
	default:
		if t.Agent, err = r.path(s.first(), t.Host); err != nil {
			return fmt.Errorf("%s: IdentityAgent: %w", s.at, err)
		}
	}
	return nil
}

// files expands values that each name one file. The value none is skipped.
func (r *reading) files(list []said, host string) (paths []string, err error) {
	for _, s := range list {
		for _, word := range s.words {
			if strings.EqualFold(word, "none") {
				continue
			}
			path, err := r.path(word, host)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", s.at, word, err)
			}
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// hostKeys sets how the machine's host key is verified.
func (r *reading) hostKeys(t *Target) (err error) {
	t.Alias = r.values["hostkeyalias"].first()
	t.KnownHosts = []string{
		filepath.Join(r.who.home, ".ssh", "known_hosts"),
		filepath.Join(r.who.home, ".ssh", "known_hosts2"),
	}
	if s, ok := r.values["userknownhostsfile"]; ok {
		if t.KnownHosts, err = r.files([]said{s}, t.Host); err != nil {
			return err
		}
	}
	t.Global = []string{"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"}
	if s, ok := r.values["globalknownhostsfile"]; ok {
		if t.Global, err = r.files([]said{s}, t.Host); err != nil {
			return err
		}
	}
	if s, ok := r.values["revokedhostkeys"]; ok && !strings.EqualFold(s.first(), "none") {
		if t.Revoked, err = r.path(s.first(), t.Host); err != nil {
			return fmt.Errorf("%s: RevokedHostKeys: %w", s.at, err)
		}
	}
	if t.Hash, err = r.yes("hashknownhosts", false); err != nil {
		return err
	}
	t.Strict = "ask"
	if s, ok := r.values["stricthostkeychecking"]; ok {
		meanings := map[string]string{
			"yes":        "yes",
			"true":       "yes",
			"ask":        "ask",
			"accept-new": "accept-new",
			"no":         "no",
			"false":      "no",
			"off":        "no",
		}
		if t.Strict, t.strictAt = meanings[strings.ToLower(s.first())], s.at; t.Strict == "" {
			return fmt.Errorf(
				"%s: StrictHostKeyChecking %q is none of yes, ask, accept-new, no and off",
				s.at,
				s.first(),
			)
		}
	}
	return nil
}

// patience sets the timeouts.
func (r *reading) patience(t *Target) (err error) {
	if t.Connect, err = r.duration("connecttimeout"); err != nil {
		return err
	}
	if t.Alive, err = r.duration("serveraliveinterval"); err != nil {
		return err
	}
	t.AliveCount, err = r.number("serveralivecountmax", 3)
	return err
}

func (r *reading) number(key string, otherwise int) (int, error) {
	s, ok := r.values[key]
	if !ok {
		return otherwise, nil
	}
	n, err := strconv.Atoi(s.first())
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s: %s %q is not a number", s.at, key, s.first())
	}
	return n, nil
}

// duration returns a time in the syntax of ssh_config: 90, 1m30s, 2h.
func (r *reading) duration(key string) (time.Duration, error) {
	s, ok := r.values[key]
	if !ok || strings.EqualFold(s.first(), "none") {
		return 0, nil
	}
	units := map[byte]time.Duration{
		's': time.Second,
		'm': time.Minute,
		'h': time.Hour,
		'd': 24 * time.Hour,
		'w': 7 * 24 * time.Hour,
	}
	total, digits := time.Duration(0), ""
	for _, c := range []byte(strings.ToLower(s.first()) + "s") {
		unit, isUnit := units[c]
		switch {
		case c >= '0' && c <= '9' && len(digits) < 7:
			digits += string(c)
		case isUnit && digits != "":
			n, _ := strconv.Atoi(digits)
			total, digits = total+time.Duration(n)*unit, ""
		case isUnit && c == 's' && total > 0:
			// This is the s appended to a time that already ends with a unit.
		default:
			return 0, fmt.Errorf("%s: %s %q is not a time such as 90, 30s or 2m", s.at, key, s.first())
		}
	}
	return total, nil
}

// Args returns the arguments with which OpenSSH's client logs in the same way. They contain the machine's ssh block;
// the client reads the configuration files itself.
func Args(m config.Machine) []string {
	var args []string
	option := func(name, value string) {
		if value != "" {
			args = append(args, name, value)
		}
	}
	if m.SSH.Port != 0 {
		option("-p", strconv.Itoa(m.SSH.Port))
	}
	option("-l", m.SSH.User)
	option("-J", m.SSH.Jump)
	if m.SSH.Key != "" {
		option("-i", m.SSH.Key)
		option("-o", "IdentitiesOnly=yes")
	}
	if m.SSH.KnownHosts != "" {
		option("-o", `UserKnownHostsFile="`+strings.ReplaceAll(m.SSH.KnownHosts, "%", "%%")+`"`)
	}
	if m.SSH.Host != "" {
		return append(args, m.SSH.Host)
	}
	return append(args, m.IP.String())
}
