package ssh

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
)

// identity describes the user who runs clusterctl.
type identity struct {
	user, uid, home, machine string
	getenv                   func(string) string
}

func currentUser(home string, getenv func(string) string) (identity, error) {
	u, err := user.Current()
	if err != nil {
		return identity{}, fmt.Errorf("find out who you are, to log in as: %w", err)
	}
	machine, err := os.Hostname()
	if err != nil {
		return identity{}, fmt.Errorf("find out this machine's name: %w", err)
	}
	return identity{user: u.Username, uid: u.Uid, home: home, machine: machine, getenv: getenv}, nil
}

// shell returns the shell that runs ProxyCommand and Match exec.
func (w identity) shell() string { return firstNonEmpty(w.getenv("SHELL"), "/bin/sh") }

// tokens maps percent tokens in a configuration's values to their values.
type tokens map[byte]string

// tokens returns OpenSSH's tokens that are known before a connection exists.
func (r *configReader) tokens(host string) tokens {
	port, remote := firstNonEmpty(r.values["port"].firstWord(), "22"),
		firstNonEmpty(r.values["user"].firstWord(), r.user.user)
	jump := r.values["proxyjump"].firstWord()
	if strings.EqualFold(jump, "none") {
		jump = ""
	}
	short, _, _ := strings.Cut(r.user.machine, ".")
	sum := sha1.Sum([]byte(r.user.machine + host + port + remote + jump))
	return tokens{
		'%': "%", 'h': host, 'p': port, 'r': remote, 'n': r.name, 'u': r.user.user, 'd': r.user.home, 'i': r.user.uid,
		'l': r.user.machine, 'L': short,
		'j': jump, 'k': firstNonEmpty(r.values["hostkeyalias"].firstWord(), r.name), 'C': hex.EncodeToString(sum[:]),
	}
}

func (t tokens) expand(text string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			b.WriteByte(text[i])
			continue
		}
		if i++; i == len(text) {
			return "", errors.New("it ends with %: a percent sign is written %%")
		}
		value, ok := t[text[i]]
		if !ok {
			return "", fmt.Errorf("%%%c stands for nothing here: a percent sign is written %%%%", text[i])
		}
		b.WriteString(value)
	}
	return b.String(), nil
}

// path expands the value of an option that names a file: ~, percent tokens, and environment variables as ${NAME}.
func (r *configReader) path(text, host string) (string, error) {
	var b strings.Builder
	rest := text
	for {
		before, after, ok := strings.Cut(rest, "${")
		b.WriteString(before)
		if !ok {
			break
		}
		name, behind, ok := strings.Cut(after, "}")
		if !ok {
			return "", errors.New("${ is not closed")
		}
		value := r.user.getenv(name)
		if value == "" {
			return "", fmt.Errorf("the environment variable %s is not set", name)
		}
		b.WriteString(strings.ReplaceAll(value, "%", "%%"))
		rest = behind
	}
	text, err := r.tokens(host).expand(b.String())
	if err == nil && (text == "~" || strings.HasPrefix(text, "~/")) {
		text = filepath.Join(r.user.home, text[1:])
	}
	return text, err
}

// hostName returns the host to connect to, as HostName sets it.
func (r *configReader) hostName() (string, error) {
	s, ok := r.values["hostname"]
	if !ok {
		return r.name, nil
	}
	host, err := tokens{'%': "%", 'h': r.name}.expand(s.firstWord())
	if err != nil {
		return "", fmt.Errorf("%s: HostName: %w", s.position, err)
	}
	return host, nil
}
