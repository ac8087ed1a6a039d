package data

import "testing"

// FuzzAnsible parses arbitrary inventories. Each becomes a value or an error.
func FuzzAnsible(f *testing.F) {
	for _, text := range []string{
		"[web]\nweb[01:10].example.com ansible_host=192.0.2.1 note=\"a b\"\n[all:vars]\na=1\n[b:children]\nweb\n",
		"all:\n  hosts:\n    a: {x: 1}\n  children:\n    g: {hosts: {b[1:2]: null}}\n",
		`{"_meta": {"hostvars": {"a": {"x": 1}}}, "g": {"hosts": ["a"], "children": ["h"], "vars": {}}, "h": ["b"]}`,
		"[a:children]\nb\n[b:children]\na\n", "x[a:c:2]\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, name := range []string{"hosts", "hosts.ini", "hosts.yaml"} {
			if inv, err := Ansible(name, text); err == nil {
				_, _ = inv.Value()
			}
		}
		_, _, _ = Terraform(text)
		_, _ = YAML(text)
	})
}
