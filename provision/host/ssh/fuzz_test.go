package ssh

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/crypto/ssh"
)

// FuzzConfig parses arbitrary settings of OpenSSH's client. They become a way to log in or an error, and no command in
// them is run.
func FuzzConfig(f *testing.F) {
	for _, text := range []string{
		"Host *\n  User root\n  Port 2222\n  IdentityFile ~/.ssh/%r@%h\n  ProxyJump a@b:22,c\n",
		"Match host 10.* exec \"true\" !user root final\n  HostName %h.example.com\nHost !x *y?\n",
		"Include config\nIgnoreUnknown a,b*\nA b\n", "UserKnownHostsFile \"a b\" none\nHostKeyAlgorithms " +
			"^ssh-*\nCiphers +x,-y\n",
		"SetEnv A=\"b c\" 'd'\\\nProxyCommand exec %%%h %p \"\nTag x\nMatch tagged x originalhost y\nPort " +
			"99999\n", "=\nHost\nHost=\"\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		home := t.TempDir()
		path := filepath.Join(home, "config")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		who := identity{user: "u", uid: "1", home: home, machine: "m", getenv: func(string) string { return "" }}
		r := newConfigReader("10.0.0.1", who)
		r.run = func(string) bool { return true }
		if r.read(Files{Home: home, User: path, System: os.DevNull}) == nil {
			_, _ = r.target()
		}
	})
}

// FuzzKnownHosts parses arbitrary known_hosts files. No key is trusted that they do not list, and nothing is written.
func FuzzKnownHosts(f *testing.F) {
	public := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public()
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		f.Fatal(err)
	}
	line := string(ssh.MarshalAuthorizedKey(key))
	for _, text := range []string{"10.0.0.2 " + line, "@revoked * " + line, "@cert-authority *.b " + line,
		"|1|YWJj|ZGVm " + line, "[10.0.0.2]:2222,!10.0.0.1 " + line, "# x\n\n@", "a ssh-ed25519 AAAA"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "known_hosts")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		target := Target{Host: "10.0.0.1", Port: 22, KnownHosts: []string{path}, StrictHostKeys: "yes"}
		other, err := ssh.NewPublicKey(ed25519.NewKeyFromSeed([]byte("a key that stands in no file: 32")).Public())
		if err != nil {
			t.Fatal(err)
		}
		if (hostKeyChecker{target: target}).check(other) == nil {
			t.Error("a key is trusted that no line lists")
		}
		_, _ = (hostKeyChecker{target: target}).hostKeyAlgorithms()
		if now, err := os.ReadFile(path); err != nil || string(now) != string(text) {
			t.Errorf("the file was changed: %v", err)
		}
	})
}
