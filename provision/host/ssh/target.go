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
	IsExplicit   bool // the machine's block names the key, which must exist
	HasOnlyKeys  bool // use only those of the agent's keys that are in Keys
	HasNoKeys    bool // PubkeyAuthentication no
	AgentSocket  string
	Jumps        []string // [user@]host[:port], in the order in which they are passed through
	ProxyCommand string   // a command that connects to the machine's sshd

	KnownHosts       []string // new keys are added to the first
	GlobalKnownHosts []string
	HostKeyAlias     string // the name by which host keys are looked up
	RevokedKeys      string // a file of revoked keys
	StrictHostKeys   string // yes, ask, accept-new or no
	HashesHosts      bool   // hash the names of added hosts

	HostKeys, Ciphers, MACs, KeyExchanges, CASignatures algorithms

	AddressFamily, BindAddress    string
	ConnectTimeout, AliveInterval time.Duration // zero means our own default
	AliveCount                    int
	strictPosition, routePosition string // position of the setting
}

// Files are the locations of the SSH configuration. Empty fields mean OpenSSH's defaults.
type Files struct {
	Home   string // empty means the user's home directory
	User   string // empty means .ssh/config in Home
	System string // empty means /etc/ssh/ssh_config
}

func (f Files) withDefaults() (Files, error) {
	if f.Home == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return f, fmt.Errorf("find your home directory: %w", err)
		}
		f.Home = home
	}
	f.User, f.System = firstNonEmpty(f.User, filepath.Join(f.Home, ".ssh", "config")),
		firstNonEmpty(f.System, "/etc/ssh/ssh_config")
	return f, nil
}

var defaultKeys = []string{"id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"}

// Resolve returns how to log in to a machine. Settings come from its ssh block, then ~/.ssh/config, then the system's
// configuration, then OpenSSH's defaults.
func Resolve(m config.Machine, f Files, getenv func(string) string) (Target, error) {
	f, err := f.withDefaults()
	if err != nil {
		return Target{}, err
	}
	user, err := currentUser(f.Home, getenv)
	if err != nil {
		return Target{}, err
	}
	name := m.SSH.Host
	if name == "" {
		name = m.IP.String()
	}
	r := newConfigReader(name, user)
	// Values of the block take precedence, like command-line arguments of ssh.
	block := func(key, value string) {
		if value != "" {
			r.values[key] = setting{words: []string{value}, position: "the machine's ssh block"}
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
		t.Keys, t.Certificates, t.IsExplicit, t.HasOnlyKeys = []string{m.SSH.Key}, nil, true, true
	}
	return t, err
}

// target builds the Target from the values that were read.
func (r *configReader) target() (t Target, err error) {
	if t.Host, err = r.hostName(); err != nil {
		return t, err
	}
	t.Name, t.User = r.name, firstNonEmpty(r.values["user"].firstWord(), r.user.user)
	if t.Port, err = r.number("port", 22); err != nil {
		return t, err
	}
	if t.Port < 1 || t.Port > 65535 {
		return t, fmt.Errorf("%s: %d is not a port", r.values["port"].position, t.Port)
	}
	for _, step := range []func(*Target) error{r.route, r.keys, r.hostKeys, r.timeouts} {
		if err := step(&t); err != nil {
			return t, err
		}
	}
	for key, list := range map[string]*algorithms{
		"hostkeyalgorithms": &t.HostKeys, "ciphers": &t.Ciphers, "macs": &t.MACs, "kexalgorithms": &t.KeyExchanges,
		"casignaturealgorithms": &t.CASignatures,
	} {
		if s, ok := r.values[key]; ok {
			*list = algorithms{value: s.firstWord(), position: s.position}
		}
	}
	return t, nil
}

// route sets how to connect to the machine.
func (r *configReader) route(t *Target) (err error) {
	if s, ok := r.values["proxyjump"]; ok && !strings.EqualFold(s.firstWord(), "none") {
		t.Jumps, t.routePosition = strings.Split(s.firstWord(), ","), s.position
	}
	if s, ok := r.values["proxycommand"]; ok && !strings.EqualFold(s.firstWord(), "none") {
		if t.ProxyCommand, err = r.tokens(t.Host).expand(s.firstWord()); err != nil {
			return fmt.Errorf("%s: ProxyCommand: %w", s.position, err)
		}
		t.routePosition = s.position
	}
	t.AddressFamily, t.BindAddress = "tcp", r.values["bindaddress"].firstWord()
	if s, ok := r.values["addressfamily"]; ok {
		networks := map[string]string{"any": "tcp", "inet": "tcp4", "inet6": "tcp6"}
		if t.AddressFamily = networks[strings.ToLower(s.firstWord())]; t.AddressFamily == "" {
			return fmt.Errorf("%s: AddressFamily %q is none of any, inet and inet6", s.position, s.firstWord())
		}
	}
	return nil
}

// keys sets the keys to log in with.
func (r *configReader) keys(t *Target) (err error) {
	if t.HasOnlyKeys, err = r.boolean("identitiesonly", false); err != nil {
		return err
	}
	on, err := r.boolean("pubkeyauthentication", true)
	if s := r.values["pubkeyauthentication"].firstWord(); err != nil && (s == "unbound" || s == "host-bound") {
		on, err = true, nil
	}
	if t.HasNoKeys = !on; err != nil {
		return err
	}
	if t.Keys, err = r.files(r.identities, t.Host); err != nil {
		return err
	}
	if len(r.identities) == 0 {
		for _, f := range defaultKeys {
			t.Keys = append(t.Keys, filepath.Join(r.user.home, ".ssh", f))
		}
	}
	if t.Certificates, err = r.files(r.certificates, t.Host); err != nil {
		return err
	}
	t.AgentSocket = r.user.getenv("SSH_AUTH_SOCK")
	s, ok := r.values["identityagent"]
	switch {
	case !ok || s.firstWord() == "SSH_AUTH_SOCK":
	case strings.EqualFold(s.firstWord(), "none"):
		t.AgentSocket = ""
	case strings.HasPrefix(s.firstWord(), "$") && !strings.HasPrefix(s.firstWord(), "${"):
		t.AgentSocket = r.user.getenv(s.firstWord()[1:])
	default:
		if t.AgentSocket, err = r.path(s.firstWord(), t.Host); err != nil {
			return fmt.Errorf("%s: IdentityAgent: %w", s.position, err)
		}
	}
	return nil
}

// files expands values that each name one file. The value none is skipped.
func (r *configReader) files(list []setting, host string) (paths []string, err error) {
	for _, s := range list {
		for _, word := range s.words {
			if strings.EqualFold(word, "none") {
				continue
			}
			path, err := r.path(word, host)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", s.position, word, err)
			}
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// hostKeys sets how the machine's host key is verified.
func (r *configReader) hostKeys(t *Target) (err error) {
	t.HostKeyAlias = r.values["hostkeyalias"].firstWord()
	t.KnownHosts = []string{
		filepath.Join(r.user.home, ".ssh", "known_hosts"),
		filepath.Join(r.user.home, ".ssh", "known_hosts2"),
	}
	if s, ok := r.values["userknownhostsfile"]; ok {
		if t.KnownHosts, err = r.files([]setting{s}, t.Host); err != nil {
			return err
		}
	}
	t.GlobalKnownHosts = []string{"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"}
	if s, ok := r.values["globalknownhostsfile"]; ok {
		if t.GlobalKnownHosts, err = r.files([]setting{s}, t.Host); err != nil {
			return err
		}
	}
	if s, ok := r.values["revokedhostkeys"]; ok && !strings.EqualFold(s.firstWord(), "none") {
		if t.RevokedKeys, err = r.path(s.firstWord(), t.Host); err != nil {
			return fmt.Errorf("%s: RevokedHostKeys: %w", s.position, err)
		}
	}
	if t.HashesHosts, err = r.boolean("hashknownhosts", false); err != nil {
		return err
	}
	t.StrictHostKeys = "ask"
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
		if t.StrictHostKeys, t.strictPosition = meanings[strings.ToLower(s.firstWord())],
			s.position; t.StrictHostKeys == "" {
			return fmt.Errorf("%s: StrictHostKeyChecking %q is none of yes, ask, accept-new, no and off", s.position,
				s.firstWord())
		}
	}
	return nil
}

// timeouts sets the timeouts.
func (r *configReader) timeouts(t *Target) (err error) {
	if t.ConnectTimeout, err = r.duration("connecttimeout"); err != nil {
		return err
	}
	if t.AliveInterval, err = r.duration("serveraliveinterval"); err != nil {
		return err
	}
	t.AliveCount, err = r.number("serveralivecountmax", 3)
	return err
}

func (r *configReader) number(key string, otherwise int) (int, error) {
	s, ok := r.values[key]
	if !ok {
		return otherwise, nil
	}
	n, err := strconv.Atoi(s.firstWord())
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s: %s %q is not a number", s.position, key, s.firstWord())
	}
	return n, nil
}

// duration returns a time in the syntax of ssh_config: 90, 1m30s, 2h.
func (r *configReader) duration(key string) (time.Duration, error) {
	s, ok := r.values[key]
	if !ok || strings.EqualFold(s.firstWord(), "none") {
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
	for _, c := range []byte(strings.ToLower(s.firstWord()) + "s") {
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
			return 0, fmt.Errorf("%s: %s %q is not a time such as 90, 30s or 2m", s.position, key, s.firstWord())
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
