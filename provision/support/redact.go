package support

import (
	"regexp"
	"strings"
	"sync"
)

// hidden replaces secrets.
const hidden = "(hidden)"

// patterns match secrets by their form.
var patterns = []func() *regexp.Regexp{
	// Private keys, as PEM or on one line of JSON or YAML.
	pattern(`-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(-----END [A-Z ]*PRIVATE KEY-----|\z)`),
	// Private keys in base64, as in kubeconfigs: LS0tLS1CRUdJTi is "-----BEGIN ".
	pattern(`LS0tLS1CRUdJTi[A-Za-z0-9+/=]{40,}`),
	// JSON Web Tokens, such as those of service accounts and OpenID Connect.
	pattern(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`),
	// Bootstrap tokens.
	pattern(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`),
	pattern(`AGE-SECRET-KEY-1[0-9A-Z]+`),
}

// fields matches names whose values are hidden, in JSON, YAML, flags and headers.
var fields = pattern(`(?i)((?:password|passwd|passphrase|client-key-data|secret[_-]?key` +
	`|api[_-]?key|access[_-]?key|account[_-]?key|auth[_-]?token` +
	`|\btoken|\bpwd|\bsig|signature|security-token|["']auth)["']?\s*[:=]\s*["']?)([^\s"',}]{4,})`)

var bearer = pattern(`(?i)((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{12,}`)

// named match a name, a separator and a value. The value is hidden if the name suggests a secret.
var named = []func() *regexp.Regexp{
	// A flag with its value: on one line, or as two items of a YAML or JSON list.
	pattern(
		`(?m:^|[\s"'\[(,=])(--?[A-Za-z][A-Za-z0-9_.-]*)(=["']?|[ \t]+["']?|["']?[ \t]*\n[ \t]*-[ \t]+["']?|["'][ \t\n]*,[ \t\n]*["'])([^\s"'-][^\s"']*)`,
	),
	// An environment variable.
	pattern(`\b([A-Z][A-Z0-9_]*)(=["']?)([^\s"']+)`),
	// An environment variable in the list of a container.
	pattern(
		`\bname["']?:[ \t]*["']?([A-Za-z0-9_.-]+)(["']?(?:[ \t]*\n[ \t]*|[ \t]*,[ \t\n]*)["']?value["']?:[ \t]*)("(?:[^"\\\n]|\\.)*"|[^\n"][^\n]*)`,
	),
}

// pattern returns a regular expression that is compiled on first use, because most processes never use it.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// Redact hides what looks like a secret.
func Redact(text string) string {
	for _, p := range patterns {
		text = p().ReplaceAllString(text, hidden)
	}
	for _, p := range hashes {
		text = p().ReplaceAllString(text, hidden)
	}
	text = redactCommands(redactLinks(shapes().ReplaceAllString(text, hidden)))
	text = bearer().ReplaceAllString(text, "${1}"+hidden)
	text = fields().ReplaceAllStringFunc(text, func(found string) string {
		parts := fields().FindStringSubmatch(found)
		if strings.HasPrefix(parts[2], hidden) {
			return found
		}
		return parts[1] + hidden
	})
	for _, p := range named {
		text = redactNamed(text, p())
	}
	return text
}

func redactNamed(text string, p *regexp.Regexp) string {
	var out strings.Builder
	begin := 0
	for _, at := range p.FindAllStringSubmatchIndex(text, -1) {
		name, value := text[at[2]:at[3]], text[at[6]:at[7]]
		if !speaksOfSecrets(name) || plainValue(strings.Trim(value, `"'`)) {
			continue
		}
		out.WriteString(text[begin:at[6]])
		if value[0] == '"' {
			out.WriteString(`"` + hidden + `"`)
		} else {
			out.WriteString(hidden)
		}
		begin = at[7]
	}
	out.WriteString(text[begin:])
	return out.String()
}
