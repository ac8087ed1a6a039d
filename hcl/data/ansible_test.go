package data

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	ctyjson "github.com/zclconf/go-cty/cty/json"
)

// The inventories in testdata/ansible must give the same result as Debian's ansible-inventory. golden.sh in that folder
// writes the golden files with ansible-inventory. With -v, this test prints all results as a table.
func TestInventoriesHaveTheValuesOfAnsible(t *testing.T) {
	entries, err := os.ReadDir("testdata/ansible")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	row := func(name, key, value, same string) { fmt.Fprintf(w, "%s\t%s\t%.80s\t%s\n", name, key, value, same) }
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".golden") || e.Name() == "golden.sh" {
			continue
		}
		n++
		t.Run(e.Name(), func(t *testing.T) {
			path := filepath.Join("testdata/ansible", e.Name())
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			golden, err := os.ReadFile(path + ".golden")
			if err != nil {
				t.Fatal(err)
			}
			got, err := inventoryTexts(path, text)
			if strings.TrimSpace(string(golden)) == "error" {
				if err == nil {
					t.Errorf("read as %v, want an error as from Ansible", got)
				}
				row(e.Name(), "refused", fmt.Sprint(err), "as Ansible does")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := goldenTexts(t, golden)
			for _, key := range sortedKeys(got, want) {
				same := "as Ansible does"
				if got[key] != want[key] {
					t.Errorf("%s\n got %s\nwant %s", key, got[key], want[key])
					same = "Ansible: " + want[key]
				}
				row(e.Name(), key, got[key], same)
			}
			again, err := inventoryTexts("list.json", golden)
			if err != nil {
				t.Fatalf("read the output of ansible-inventory: %v", err)
			}
			for _, key := range sortedKeys(again, want) {
				if again[key] != want[key] {
					t.Errorf("output of ansible-inventory: %s\n got %s\nwant %s", key, again[key], want[key])
				}
			}
		})
	}
	if n < 50 {
		t.Errorf("there are only %d inventories", n)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d inventories, what each gives, its value, and whether ansible-inventory --list says the same:\n%s", n,
		table.String())
}

// inventoryTexts returns the hosts' variables and the groups' hosts as expressions see them, each as text.
func inventoryTexts(name string, text []byte) (map[string]string, error) {
	inv, err := Ansible(name, text)
	if err != nil {
		return nil, err
	}
	v, err := inv.Value()
	if err != nil {
		return nil, err
	}
	out, err := ctyjson.Marshal(v, v.Type())
	if err != nil {
		return nil, err
	}
	var all struct {
		Hosts map[string]struct {
			Vars map[string]any `json:"vars"`
		} `json:"hosts"`
		Groups map[string][]string `json:"groups"`
	}
	if err := unmarshal(out, &all); err != nil {
		return nil, err
	}
	values := map[string]string{}
	for host, of := range all.Hosts {
		for key, value := range of.Vars {
			values["variable "+key+" of "+host] = plainText(value)
		}
	}
	for group, hosts := range all.Groups {
		if len(hosts) > 0 {
			values["group "+group] = strings.Join(hosts, " ")
		}
	}
	return values, nil
}

// goldenTexts returns the same values as seen, computed from the output of ansible-inventory --list.
func goldenTexts(t *testing.T, golden []byte) map[string]string {
	t.Helper()
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(golden, &raw); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	groups := map[string]struct{ Hosts, Children []string }{}
	for name, text := range raw {
		if name == "_meta" {
			var meta struct {
				Hostvars map[string]map[string]any `json:"hostvars"`
			}
			if err := unmarshal(text, &meta); err != nil {
				t.Fatal(err)
			}
			for host, vars := range meta.Hostvars {
				for key, value := range vars {
					values["variable "+key+" of "+host] = plainText(value)
				}
			}
			continue
		}
		g := groups[name]
		if err := json.Unmarshal(text, &g); err != nil {
			t.Fatal(err)
		}
		groups[name] = g
	}
	var members func(name string) []string
	members = func(name string) (hosts []string) {
		hosts = slices.Clone(groups[name].Hosts)
		for _, child := range groups[name].Children {
			hosts = append(hosts, members(child)...)
		}
		slices.Sort(hosts)
		return slices.Compact(hosts)
	}
	for name := range groups {
		if hosts := members(name); len(hosts) > 0 {
			values["group "+name] = strings.Join(hosts, " ")
		}
	}
	return values
}

// plainText writes a value so that equal numbers are equal texts.
func plainText(v any) string {
	switch v := v.(type) {
	case json.Number:
		f, _, err := big.ParseFloat(v.String(), 10, 512, big.ToNearestEven)
		if err != nil {
			return v.String()
		}
		return f.Text('g', 40)
	case []any:
		var list []string
		for _, e := range v {
			list = append(list, plainText(e))
		}
		return "[" + strings.Join(list, ", ") + "]"
	case map[string]any:
		var list []string
		for _, key := range sortedKeys(v) {
			list = append(list, fmt.Sprintf("%q: %s", key, plainText(v[key])))
		}
		return "{" + strings.Join(list, ", ") + "}"
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(out.String())
}

func sortedKeys[V any](maps ...map[string]V) (keys []string) {
	for _, m := range maps {
		for key := range m {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func TestConnectionVariablesOfHostsAreUsed(t *testing.T) {
	for line, want := range map[string]string{
		"a": `{"address":"a","groups":["g"],"name":"a","port":null,"user":null,"vars":{}}`,
		"a ansible_host=192.0.2.1 ansible_port=22 ansible_user=me": `{"address":"192.0.2.1",` +
			`"groups":["g"],"name":"a","port":22,"user":"me","vars":{"ansible_host":"192.0.2.1","ansible_port":22,` +
			`"ansible_user":"me"}}`,
		"a ansible_ssh_host=192.0.2.1 ansible_ssh_port=\"'22'\" ansible_ssh_user=me": `{"address":"192.0.2.1",` +
			`"groups":["g"],"name":"a","port":22,"user":"me","vars":{"ansible_ssh_host":"192.0.2.1",` +
			`"ansible_ssh_port":"22","ansible_ssh_user":"me"}}`,
		"a ansible_host=192.0.2.1 ansible_ssh_host=192.0.2.2": `{"address":"192.0.2.2",` +
			`"groups":["g"],"name":"a","port":null,"user":null,"vars":{"ansible_host":"192.0.2.1",` +
			`"ansible_ssh_host":"192.0.2.2"}}`,
	} {
		inv, err := Ansible("hosts.ini", []byte("[g]\n"+line+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		v, err := inv.Value()
		if err != nil {
			t.Fatal(err)
		}
		host := v.GetAttr("hosts").GetAttr("a")
		if text, err := ctyjson.Marshal(host, host.Type()); err != nil || string(text) != want {
			t.Errorf("%s\n got %s, %v\nwant %s", line, text, err, want)
		}
	}
}

func TestUnsupportedInventoriesAreRejected(t *testing.T) {
	for name, want := range map[string]string{
		"hosts.toml":  "TOML",
		"plugin.yaml": "the configuration of a plugin",
		"vault.yaml":  "encrypted by ansible-vault",
	} {
		text := map[string]string{"hosts.toml": "[web]", "plugin.yaml": "plugin: aws_ec2\nregions: [a]\n",
			"vault.yaml": "all:\n  vars:\n    s: !vault |\n      $ANSIBLE_VAULT;1.1\n"}[name]
		if _, err := Ansible(name, []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", name, err, want)
		}
	}
}
