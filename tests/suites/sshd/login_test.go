package sshd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/host/ssh"
)

// OpenSSH's client and clusterctl try each configuration: both can log in, or neither.
//
//style:long a table of configurations, with the servers and keys that they name
func TestLoginsBehaveLikeOpenSSH(t *testing.T) {
	l := newKeyLab(t)
	sign := func(ca, key, principals string, more ...string) {
		l.runCommand(t, "ssh-keygen", append(append([]string{"-q", "-s", l.path(ca), "-I", key, "-n", principals},
			more...), l.path(key+".pub"))...)
	}
	user := userName(t)
	for _, k := range []string{"certified", "expired", "other"} {
		l.copyKey(t, "stranger", k)
	}
	sign("ca", "certified", user)
	sign("ca", "expired", user, "-V", "20200101:20200102")
	sign("otherca", "other", user)
	sign("ca", "host", "target,machine.example", "-h")
	plain := l.startServer(t, "plain", []string{"mine", "held"}, "HostKey "+l.path("host2"), "HostKey "+
		l.path("hostrsa"))
	second := l.startServer(t, "second", []string{"second"}, "HostKey "+l.path("host2"))
	certs := l.startServer(t, "certs", []string{"mine"}, "HostKey "+l.path("host"),
		"HostCertificate "+l.path("host-cert.pub"), "TrustedUserCAKeys "+l.path("ca.pub"))
	socket := l.startAgent(t, "held")

	at := func(port string) string { return fmt.Sprintf("[127.0.0.1]:%s", port) }
	knownHosts := fmt.Sprintf("%s %s\n%s %s\n", at(plain), l.publicKey(t, "host2"), at(second), l.publicKey(t, "host2"))
	hashed := l.path("hashed")
	writeFile(t, hashed, knownHosts)
	l.runCommand(t, "ssh-keygen", "-q", "-H", "-f", hashed)
	text, err := os.ReadFile(hashed)
	if err != nil {
		t.Fatal(err)
	}
	base := "Host *\n HostName 127.0.0.1\n"
	mine := "IdentityFile " + l.path("mine") + "\n"
	rows := []struct {
		name, config, knownHosts string
		fails                    error  // nil: both can log in
		says                     string // clusterctl's error otherwise
	}{
		{"a key", base + "Port " + plain + "\n" + mine, knownHosts, nil, ""},
		{
			"a key that is not let in",
			base + "Port " + plain + "\nIdentityFile " + l.path("stranger") + "\n",
			knownHosts,
			ssh.ErrLogin,
			"stranger",
		},
		{
			"the second of two keys",
			base + "Port " + plain + "\nIdentityFile " + l.path("stranger") + "\n" + mine,
			knownHosts,
			nil,
			"",
		},
		{
			"a chain of two jump hosts, each with its own key",
			"Host target\n Port " + plain + "\n ProxyJump g1,g2\n IdentityFile " + l.path("mine") +
				"\nHost g1\n Port " + second + "\n IdentityFile " + l.path("second") + "\nHost g2\n Port " + plain +
				"\n IdentityFile " + l.path("mine") + "\n" + base,
			knownHosts,
			nil,
			"",
		},
		{
			"a jump host with a jump host of its own",
			"Host target\n Port " + plain + "\n ProxyJump g1\n IdentityFile " + l.path("mine") +
				"\nHost g1\n Port " + plain + "\n ProxyJump g2\n IdentityFile " + l.path("mine") + "\nHost g2\n Port " +
				second + "\n IdentityFile " + l.path("second") + "\n" + base,
			knownHosts,
			nil,
			"",
		},
		{
			"a jump host that does not let in",
			"Host target\n Port " + plain + "\n ProxyJump g1\n IdentityFile " + l.path("mine") +
				"\nHost g1\n Port " + second + "\n IdentityFile " + l.path("mine") + "\n" + base,
			knownHosts,
			ssh.ErrLogin,
			"go through g1",
		},
		{
			"a jump host with a host key of its own",
			"Host target\n Port " + plain + "\n ProxyJump g1\n IdentityFile " + l.path("mine") +
				"\nHost g1\n Port " + second + "\n IdentityFile " + l.path("second") + "\n" + base,
			at(plain) + " " + l.publicKey(t, "host2") + "\n",
			ssh.ErrHostKey,
			"not known",
		},
		{
			"a proxy command",
			"Host target\n Port " + plain + "\n ProxyCommand ssh -F @CONFIG@ -o BatchMode=yes -W %h:%p \"g1\"\n " +
				"IdentityFile " + l.path("mine") +
				"\nHost g1\n Port " + second + "\n IdentityFile " + l.path("second") + "\n" + base,
			knownHosts,
			nil,
			"",
		},
		{
			"a proxy command that fails",
			base + "ProxyCommand echo no way >&2; exit 1\nPort " + plain + "\n" + mine,
			knownHosts,
			ssh.ErrUnreachable,
			"no way",
		},
		{
			"a user certificate by name",
			base + "Port " + certs + "\nIdentityFile " + l.path("stranger") + "\nCertificateFile " + l.path(
				"certified-cert.pub") + "\n",
			at(certs) + " " + l.publicKey(t, "host"),
			nil,
			"",
		},
		{
			"a user certificate beside the key",
			base + "Port " + certs + "\nIdentityFile " + l.path("certified") + "\n",
			at(certs) + " " + l.publicKey(t, "host"),
			nil,
			"",
		},
		{
			"an expired user certificate",
			base + "Port " + certs + "\nIdentityFile " + l.path("expired") + "\n",
			at(certs) + " " + l.publicKey(t, "host"),
			ssh.ErrLogin,
			"expired-cert.pub",
		},
		{
			"another authority's user certificate",
			base + "Port " + certs + "\nIdentityFile " + l.path("other") + "\n",
			at(certs) + " " + l.publicKey(t, "host"),
			ssh.ErrLogin,
			"",
		},
		{
			"a host certificate",
			base + "HostKeyAlias target\nPort " + certs + "\n" + mine,
			"@cert-authority target,*.example " + l.publicKey(t, "ca"),
			nil,
			"",
		},
		{
			"a host certificate by a pattern",
			base + "HostKeyAlias machine.example\nPort " + certs + "\n" + mine,
			"@cert-authority *.example " + l.publicKey(t, "ca"),
			nil,
			"",
		},
		{
			"a host certificate for another name",
			base + "HostKeyAlias wrong.example\nPort " + certs + "\n" + mine,
			"@cert-authority *.example " + l.publicKey(t, "ca"),
			ssh.ErrHostKey,
			"its certificate is not good",
		},
		{
			"a host certificate of another authority",
			base + "HostKeyAlias target\nPort " + certs + "\n" + mine,
			"@cert-authority target " + l.publicKey(t, "otherca"),
			ssh.ErrHostKey,
			"",
		},
		{"a host certificate whose authority is revoked", base + "HostKeyAlias target\nPort " + certs + "\n" + mine,
			"@cert-authority target " + l.publicKey(t, "ca") + "\n@revoked * " + l.publicKey(t,
				"ca"), ssh.ErrHostKey, "revoked"},
		{
			"a host certificate where the key itself is known",
			base + "HostKeyAlias target\nPort " + certs + "\n" + mine,
			"target " + l.publicKey(t, "host"),
			nil,
			"",
		},
		{
			"a revoked host key",
			base + "Port " + plain + "\n" + mine,
			knownHosts + "@revoked * " + l.publicKey(t, "host2"),
			ssh.ErrHostKey,
			"revoked",
		},
		{
			"a host key in the file of revoked ones",
			base + "RevokedHostKeys " + l.path("host2.pub") + "\nPort " + plain + "\n" + mine,
			knownHosts,
			ssh.ErrHostKey,
			"revoked",
		},
		{
			"a file of revoked keys that is not there",
			base + "RevokedHostKeys /absent\nPort " + plain + "\n" + mine,
			knownHosts,
			ssh.ErrHostKey,
			"without which no machine is trusted",
		},
		{"hashed known hosts", base + "Port " + plain + "\n" + mine, string(text), nil, ""},
		{
			"a host known without a port",
			base + "Port " + plain + "\n" + mine,
			"127.0.0.1 " + l.publicKey(t, "host2"),
			nil,
			"",
		},
		{
			"a host known by a pattern",
			base + "Port " + plain + "\n" + mine,
			"127.0.*,!x " + l.publicKey(t, "host2"),
			nil,
			"",
		},
		{
			"an alias",
			base + "HostKeyAlias other\nPort " + plain + "\n" + mine,
			"other " + l.publicKey(t, "host2"),
			nil,
			"",
		},
		{
			"an alias that is not known",
			base + "HostKeyAlias other\nPort " + plain + "\n" + mine,
			knownHosts,
			ssh.ErrHostKey,
			"not known",
		},
		{
			"a host whose RSA key alone is known",
			base + "Port " + plain + "\n" + mine,
			at(plain) + " " + l.publicKey(t, "hostrsa"),
			nil,
			"",
		},
		{
			"a changed host key",
			base + "Port " + plain + "\n" + mine,
			at(plain) + " " + l.publicKey(t, "host"),
			ssh.ErrHostKey,
			"has changed",
		},
		{"an unknown host", base + "Port " + plain + "\n" + mine, "", ssh.ErrHostKey, "not known"},
		{
			"an unknown host, to be accepted",
			base + "StrictHostKeyChecking accept-new\nPort " + plain + "\n" + mine,
			"",
			nil,
			"",
		},
		{
			"an unknown host, not to be checked",
			base + "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nPort " + plain + "\n" + mine,
			"",
			nil,
			"",
		},
		{
			"a changed host key, new ones accepted",
			base + "StrictHostKeyChecking accept-new\nPort " + plain + "\n" + mine,
			at(plain) + " " + l.publicKey(t, "host"),
			ssh.ErrHostKey,
			"has changed",
		},
		{
			"algorithms that the server has",
			base + "HostKeyAlgorithms rsa-sha2-512\nPort " + plain + "\n" + mine,
			at(plain) + " " + l.publicKey(t, "hostrsa"),
			nil,
			"",
		},
		{
			"algorithms that the server has not",
			base + "HostKeyAlgorithms ecdsa-sha2-nistp256\nPort " + plain + "\n" + mine,
			knownHosts,
			ssh.ErrUnreachable,
			"host key",
		},
		{
			"algorithms without one",
			base + "HostKeyAlgorithms -ssh-ed25519*\nPort " + plain + "\n" + mine,
			at(plain) + " " + l.publicKey(t, "hostrsa"),
			nil,
			"",
		},
		{
			"ciphers",
			base + "Ciphers aes256-ctr\nMACs ^hmac-sha2-512\nKexAlgorithms curve25519-sha256\nPort " + plain + "\n" +
				mine,
			knownHosts,
			nil,
			"",
		},
		{"the agent", base + "IdentityAgent " + socket + "\nPort " + plain + "\n", knownHosts, nil, ""},
		{"the agent by a variable", base + "IdentityAgent $MY_AGENT\nPort " + plain + "\n", knownHosts, nil, ""},
		{
			"the agent's key that is not named",
			base + "IdentitiesOnly yes\nIdentityAgent " + socket + "\nIdentityFile " + l.path(
				"stranger") + "\nPort " + plain + "\n",
			knownHosts,
			ssh.ErrLogin,
			"stranger",
		},
		{
			"the agent's key that is named by its public half",
			base + "IdentitiesOnly yes\nIdentityAgent " + socket + "\nIdentityFile " + l.path(
				"held.pub") + "\nPort " + plain + "\n",
			knownHosts,
			nil,
			"",
		},
		{
			"no agent",
			base + "IdentityAgent none\nIdentityFile " + l.path("stranger") + "\nPort " + plain + "\n",
			knownHosts,
			ssh.ErrLogin,
			"",
		},
		{
			"a locked key and nobody to ask",
			base + "IdentityFile " + l.path("locked") + "\nPort " + plain + "\n",
			knownHosts,
			ssh.ErrLogin,
			"locked",
		},
		{"no keys at all", base + "PubkeyAuthentication no\nPort " + plain + "\n" + mine, knownHosts, ssh.ErrLogin, ""},
		{
			"another family of addresses",
			base + "AddressFamily inet6\nPort " + plain + "\n" + mine,
			knownHosts,
			ssh.ErrUnreachable,
			"",
		},
		{"an address to come from", base + "BindAddress 127.0.0.2\nPort " + plain + "\n" + mine, knownHosts, nil, ""},
		{
			"a command that decides",
			"Match exec \"test %n = target\"\n Port " + plain + "\nHost *\n Port 1\n" + base + mine,
			knownHosts,
			nil,
			"",
		},
	}
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			dir := filepath.Join(l.dir, fmt.Sprint(i))
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "config")
			text := row.config + "Host *\n UserKnownHostsFile " + filepath.Join(dir,
				"known") + "\n GlobalKnownHostsFile /dev/null\n"
			writeFile(t, path, strings.ReplaceAll(text, "@CONFIG@", path))
			writeFile(t, filepath.Join(dir, "known"), row.knownHosts)
			theirs := exec.Command("ssh", "-F", path, "-o", "BatchMode=yes", "target", "true")
			theirs.Env = append(os.Environ(), "MY_AGENT="+socket)
			out, err := theirs.CombinedOutput()
			if (err == nil) != (row.fails == nil) {
				t.Errorf("ssh says %v: %s", err, out)
			}
			writeFile(t, filepath.Join(dir, "known"), row.knownHosts) // the content from before ssh wrote to it
			client, err := dialTarget(t, path, map[string]string{"MY_AGENT": socket}, nil)
			if row.fails == nil && err != nil ||
				row.fails != nil && (!errors.Is(err, row.fails) || !strings.Contains(err.Error(), row.says)) {
				t.Fatalf("error %v, want %v %s", err, row.fails, row.says)
			}
			if err != nil {
				return
			}
			session, err := client.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			if out, err := session.Output("echo in"); err != nil || string(out) != "in\n" {
				t.Errorf("ran %q, %v", out, err)
			}
		})
	}
}

func dialTarget(
	t *testing.T,
	path string,
	environment map[string]string,
	ask func(string, func([]byte) error) error,
) (*ssh.Client, error) {
	t.Helper()
	c, err := ssh.Dial(t.Context(), config.Machine{SSH: config.SSH{Host: "target"}}, ssh.Options{
		Files: ssh.Files{User: path, System: os.DevNull}, Timeout: 10 * time.Second, Passphrase: ask,
		Getenv: func(name string) string { return environment[name] },
	})
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

// The passphrase of a key is requested only if the machine accepts the key.
func TestPassphrasesAreAskedOnlyForAcceptedKeys(t *testing.T) {
	l := newKeyLab(t)
	port := l.startServer(t, "plain", []string{"locked", "mine"}, "HostKey "+l.path("host"))
	base := "Host *\n HostName 127.0.0.1\n Port " + port + "\n GlobalKnownHostsFile /dev/null\n UserKnownHostsFile " +
		l.path("known") + "\n"
	writeFile(t, l.path("known"), "[127.0.0.1]:"+port+" "+l.publicKey(t, "host")+"\n")
	for _, row := range []struct {
		keys     []string
		answer   string
		requests int
		fails    bool
	}{
		{[]string{"locked"}, "secret", 1, false},
		{[]string{"locked"}, "wrong", 1, true},
		{[]string{"mine", "locked"}, "secret", 0, false},
	} {
		path := l.path("config")
		text := base
		for _, k := range row.keys {
			text += " IdentityFile " + l.path(k) + "\n"
		}
		writeFile(t, path, text)
		requests := 0
		_, err := dialTarget(t, path, nil, func(_ string, try func([]byte) error) error {
			requests++
			return try([]byte(row.answer))
		})
		if (err != nil) != row.fails || requests != row.requests {
			t.Errorf("%v, %q: asked %d times, error %v", row.keys, row.answer, requests, err)
		}
		if err != nil && (!errors.Is(err, ssh.ErrLogin) || errors.Is(err, ssh.ErrUnreachable)) {
			t.Errorf("a wrong passphrase is no machine that is not reached: %v", err)
		}
	}
}
