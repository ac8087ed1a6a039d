package local

import (
	"os/exec"
	"slices"
	"strings"

	"clusterctl/provision/host"
)

// systemdProxies returns the proxy variables that systemd sets for all services, or nil if systemctl fails.
func systemdProxies() map[string]string {
	out, err := exec.Command("systemctl", "show-environment").Output()
	if err != nil {
		return nil
	}
	return parseProxies(string(out))
}

func parseProxies(environment string) map[string]string {
	found := map[string]string{}
	for _, v := range parseVariables(environment) {
		name, value, _ := strings.Cut(v, "=")
		if !slices.Contains(host.ProxyVariables, name) || value == "" {
			continue
		}
		if i := strings.LastIndexByte(value, '@'); i >= 0 { // removes user and password
			scheme, _, ok := strings.Cut(value, "://")
			if value = value[i+1:]; ok {
				value = scheme + "://" + value
			}
		}
		found[name] = value
	}
	if len(found) == 0 {
		return nil
	}
	return found
}

// parseVariables returns the NAME=VALUE lines of a text. It removes the $'…' quotes that systemctl puts around values
// with special characters.
func parseVariables(text string) (list []string) {
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		if quoted, ok := strings.CutPrefix(value, "$'"); ok {
			value = strings.NewReplacer(`\\`, `\`, `\'`, `'`, `\"`, `"`).Replace(strings.TrimSuffix(quoted, "'"))
		}
		list = append(list, name+"="+value)
	}
	return list
}
