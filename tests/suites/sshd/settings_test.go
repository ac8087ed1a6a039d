// Package sshd compares how clusterctl uses ~/.ssh/config with OpenSSH's own client and server, on loopback. It needs
// openssh-client and openssh-server.
package sshd

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"clusterctl/hcl/config"
	"clusterctl/provision/host/ssh"
)

// clusterctl and ssh -G read each row, for every host.
func TestSettingsMatchOpenSSH(t *testing.T) {
	hosts := []string{"a", "web1", "web2", "db.example.com", "10.0.0.1", "A"}
	for name, text := range map[string]string{
		"patterns": "Host web? !web2\n User joe\nHost *.example.com\n Port 2200\nHost 10.0.0.*\n User " +
			"ten\nHost *\n User rest\n",
		"negation alone":     "Host !web1\n User nobody\nHost * !a\n Port 99\n",
		"brackets are plain": "Host web[12]\n User brackets\n",
		"first wins":         "User one\nUser two\nHost a\n User three\n",
		"quotes and equals": "Host=a\n User = \"joe x\"\n IdentityFile \"/x y/z\"\n Port=33\nHost \"web1\" 'web2'\n " +
			" HostName  'x.example'  # said\n",
		"tabs and case":   "HOST\ta\n\tUSER\tbig\n\tpORT 7\n",
		"comment":         "# Host a\nHost a # web1\n User only-a\n",
		"hostname tokens": "Host a web*\n HostName %h.example.com\n",
		"match host": "Host a\n HostName real.example\nMatch host real.*\n User matched\nMatch originalhost " +
			"a\n Port 44\n",
		"match in any case": "Match host A\n User upper\nMatch originalhost DB.example.com\n Port 45\n",
		"match not":         "Match !host a\n User others\nMatch host web*,!web2\n Port 46\n",
		"match two": "User joe\nMatch user joe host web1\n Port 47\nMatch user joe,jane originalhost web2\n " +
			"Port 48\n",
		"match local": "Match localuser " + userName(t) + "\n Port 49\nMatch !localuser " + userName(t) +
			"\n User other\n",
		"match exec":        "Match exec \"test %h = web1\"\n User yes\nMatch !exec \"test %n = web1\"\n User no\n",
		"match exec quoted": "Match host a exec \"test '%h %p %r' = 'a 22 " + userName(t) + "'\"\n User yes\n",
		"match all":         "Host a\n User a\nMatch all\n User all\n Port 50\n",
		"match final": "Match final host a.example\n User late\nHost a\n HostName %h.example\nMatch final " +
			"all\n Port 51\n",
		"match final not":    "Match !final host a\n User early\nMatch canonical host a\n Port 52\n",
		"include":            "Include @DIR@/*.conf\nHost *\n User main\n",
		"include in a block": "Host web1\n Include @DIR@/one.conf\nHost *\n Port 53\n",
		"include nothing":    "Include @DIR@/absent* @DIR@/one.conf\n",
		"files": "IdentityFile ~/.ssh/one\nIdentityFile /two\nHost a\n IdentityFile /three\n " +
			"IdentityFile /two\nCertificateFile ~/c1\nCertificateFile /c2\nUserKnownHostsFile ~/k1 \"/k " +
			"2\"\nGlobalKnownHostsFile /g1 /g2\n",
		"jump": "Host a\n ProxyJump g1,joe@g2:2222\nHost web1\n ProxyCommand nc \"%h\" %p # not a " +
			"comment\nHost *\n ProxyJump other\n ProxyCommand late\n",
		"jump none":   "Host a\n ProxyJump none\nHost web1\n ProxyCommand none\nHost *\n ProxyJump other\n",
		"times":       "ConnectTimeout 1m30s\nServerAliveInterval 2m\nServerAliveCountMax 5\n",
		"times plain": "ConnectTimeout 7\nServerAliveInterval 10s\n",
		"trust": "StrictHostKeyChecking accept-new\nHostKeyAlias %n\nHashKnownHosts yes\nRevokedHostKeys " +
			"/revoked\nIdentitiesOnly yes\n",
		"trust off": "StrictHostKeyChecking off\nHostKeyAlias alias\nIdentityAgent none\n",
		"network":   "AddressFamily inet6\nBindAddress 127.0.0.1\nIdentityAgent ~/agent\n",
		"ignored": "IgnoreUnknown Foo*,bar\nFooBar yes\nBar no\nCompression yes\nForwardAgent yes\nLocalForward " +
			"8080 localhost:80\nUser x\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "one.conf"), "Host web*\n User inc\n Port 60\n")
			writeFile(t, filepath.Join(dir, "two.conf"), "User two\nHost a\n HostName two.example\n")
			path := filepath.Join(dir, "config")
			writeFile(t, path, strings.ReplaceAll(text, "@DIR@", dir))
			for _, host := range hosts {
				want := effectiveOptions(t, path, host)
				got, err := ssh.Resolve(config.Machine{SSH: config.SSH{Host: host}},
					ssh.Files{User: path, System: os.DevNull}, os.Getenv)
				if err != nil {
					t.Fatal(err)
				}
				for key, value := range targetOptions(got) {
					if want[key] != value {
						t.Errorf("%s: %s is %q, ssh says %q", host, key, value, want[key])
					}
				}
			}
		})
	}
}

// clusterctl refuses what ssh refuses, and settings that it does not support, with their position.
func TestUnsupportedSettingsAreRejected(t *testing.T) {
	for text, want := range map[string]struct {
		says string
		both bool // ssh refuses it too
	}{
		"Usr joe\n":                     {"config:1: usr is not an option", true},
		"Host b\n Usr joe\n":            {"config:2: usr is not an option", true},
		"Host a\n User \"joe\n":         {"config:2: user: a quote is not closed", true},
		"Port many\n":                   {"config:1: port", true},
		"Port 70000\n":                  {"config:1: 70000 is not a port", true},
		"Port\n":                        {"config:1: port has no value", true},
		"Match host\n":                  {"config:1: Match host has no value", true},
		"Match moon full\n":             {"config:1: Match moon", true},
		"Match all host a\n":            {"config:1: Match all stands alone", true},
		"HostName %q\n":                 {"config:1: HostName: %q stands for nothing", true},
		"AddressFamily moon\n":          {"config:1: AddressFamily", true},
		"StrictHostKeyChecking never\n": {"config:1: StrictHostKeyChecking", true},
		"ConnectTimeout soon\n":         {"config:1: connecttimeout", true},
		"IdentitiesOnly maybe\n":        {"config:1: identitiesonly", true},
		"Include @DIR@/config\n":        {"include each other", true},
		"\nCanonicalizeHostname yes\n":  {"config:2: canonicalizehostname yes is not carried out", false},
		"KnownHostsCommand /bin/keys %H\n": {"config:1: knownhostscommand /bin/keys %H is not carried " +
			"out", false},
		"PKCS11Provider /lib/card.so\n":          {"config:1: pkcs11provider", false},
		"ProxyUseFdpass yes\n":                   {"config:1: proxyusefdpass", false},
		"VerifyHostKeyDNS yes\n":                 {"config:1: verifyhostkeydns", false},
		"NoHostAuthenticationForLocalhost yes\n": {"config:1: nohostauthenticationforlocalhost", false},
		"CheckHostIP yes\n":                      {"config:1: checkhostip", false},
		"BindInterface lo\n":                     {"config:1: bindinterface", false},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "config")
		writeFile(t, path, strings.ReplaceAll(text, "@DIR@", dir))
		_, err := ssh.Resolve(config.Machine{SSH: config.SSH{Host: "a"}}, ssh.Files{User: path, System: os.DevNull},
			os.Getenv)
		if err == nil || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%q: error %v, want %q", text, err, want.says)
		}
		if theirs := exec.Command("ssh", "-F", path, "-G", "a").Run(); (theirs != nil) != want.both {
			t.Errorf("%q: ssh says %v", text, theirs)
		}
	}
}

// A setting for another host does not prevent connections to a machine.
func TestUnsupportedSettingsOfOtherHostsAreIgnored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	writeFile(t, path, "Host b\n CanonicalizeHostname yes\n KnownHostsCommand /bin/keys\n")
	if _, err := ssh.Resolve(config.Machine{SSH: config.SSH{Host: "a"}}, ssh.Files{User: path, System: os.DevNull},
		os.Getenv); err != nil {
		t.Error(err)
	}
}

func TestSettingsFilesThatOthersCanWriteAreRejected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	writeFile(t, path, "User x\n")
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ssh.Resolve(config.Machine{SSH: config.SSH{Host: "a"}}, ssh.Files{User: path, System: os.DevNull},
		os.Getenv); err == nil ||
		!strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("error %v", err)
	}
}

// effectiveOptions returns the effective options of ssh.
func effectiveOptions(t *testing.T, path, host string) map[string]string {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	c := exec.Command("ssh", "-F", path, "-G", host)
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("ssh -G %s: %v: %s", host, err, &stderr)
	}
	outputs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if key == "identityfile" || key == "certificatefile" || key == "identityagent" {
			if rest, ok := strings.CutPrefix(value, "~/"); ok {
				value = filepath.Join(home, rest)
			}
		}
		if before, ok := outputs[key]; ok {
			value = before + "\n" + value
		}
		outputs[key] = value
	}
	return outputs
}

// targetOptions returns the options of a target in the format of ssh -G.
func targetOptions(g ssh.Target) map[string]string {
	seconds := func(n int, otherwise string) string {
		if n == 0 {
			return otherwise
		}
		return strconv.Itoa(n)
	}
	v := map[string]string{
		"hostname": strings.ToLower(
			g.Host,
		), "port": strconv.Itoa(g.Port), "user": g.User, "proxyjump": strings.Join(g.Jumps, ","),
		"certificatefile": strings.Join(g.Certificates, "\n"), "userknownhostsfile": strings.Join(g.KnownHosts, " "),
		"globalknownhostsfile": strings.Join(g.GlobalKnownHosts, " "), "hostkeyalias": g.HostKeyAlias,
		"bindaddress":   g.BindAddress,
		"addressfamily": map[string]string{"tcp": "any", "tcp4": "inet", "tcp6": "inet6"}[g.AddressFamily],
		"stricthostkeychecking": map[string]string{"yes": "true", "no": "false"}[g.StrictHostKeys] +
			map[string]string{"ask": "ask", "accept-new": "accept-new"}[g.StrictHostKeys],
		"hashknownhosts": map[bool]string{true: "yes", false: "no"}[g.HashesHosts],
		"identitiesonly": map[bool]string{true: "yes", false: "no"}[g.HasOnlyKeys],
		"connecttimeout": seconds(int(g.ConnectTimeout.Seconds()),
			"none"), "serveraliveinterval": seconds(int(g.AliveInterval.Seconds()), "0"),
		"serveralivecountmax": fmt.Sprint(g.AliveCount),
	}
	if g.RevokedKeys != "" {
		v["revokedhostkeys"] = g.RevokedKeys
	}
	// The default keys of OpenSSH include kinds that clusterctl does not have.
	if len(g.Keys) > 0 && filepath.Base(g.Keys[0]) != "id_rsa" {
		v["identityfile"] = strings.Join(g.Keys, "\n")
	}
	return v
}

func userName(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("id", "-un").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
