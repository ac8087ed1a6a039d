package support

import (
	"regexp"
	"strings"
	"sync"
)

// hiddenText replaces secrets.
const hiddenText = "(hidden)"

// secretPatterns match secrets by their form.
var secretPatterns = []func() *regexp.Regexp{
	// Private keys, as PEM or on one line of JSON or YAML.
	lazyPattern(`-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(-----END [A-Z ]*PRIVATE KEY-----|\z)`),
	// Private keys in base64, as in kubeconfigs: LS0tLS1CRUdJTi is "-----BEGIN ".
	lazyPattern(`LS0tLS1CRUdJTi[A-Za-z0-9+/=]{40,}`),
	// JSON Web Tokens, such as those of service accounts and OpenID Connect.
	lazyPattern(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`),
	// Bootstrap tokens.
	lazyPattern(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`),
	lazyPattern(`AGE-SECRET-KEY-1[0-9A-Z]+`),
}

// secretFieldPattern matches names whose values are hidden, in JSON, YAML, flags and headers.
var secretFieldPattern = lazyPattern(`(?i)((?:password|passwd|passphrase|client-key-data|secret[_-]?key` +
	`|api[_-]?key|access[_-]?key|account[_-]?key|auth[_-]?token` +
	`|\btoken|\bpwd|\bsig|signature|security-token|["']auth)["']?\s*[:=]\s*["']?)([^\s"',}]{4,})`)

var bearerPattern = lazyPattern(`(?i)((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{12,}`)

// namedPatterns match a name, a separator and a value. The value is hidden if the name suggests a secret.
var namedPatterns = []func() *regexp.Regexp{
	// A flag with its value: on one line, or as two items of a YAML or JSON list.
	lazyPattern(
		`(?m:^|[\s"'\[(,=])(--?[A-Za-z][A-Za-z0-9_.-]*)(=["']?|[ \t]+["']?|["']?[ \t]*\n[ \t]*-[ \t]+["']?|["'][ \t\n]*,[ \t\n]*["'])([^\s"'-][^\s"']*)`,
	),
	// An environment variable.
	lazyPattern(`\b([A-Z][A-Z0-9_]*)(=["']?)([^\s"']+)`),
	// An environment variable in the list of a container.
	lazyPattern(
		`\bname["']?:[ \t]*["']?([A-Za-z0-9_.-]+)(["']?(?:[ \t]*\n[ \t]*|[ \t]*,[ \t\n]*)["']?value["']?:[ \t]*)("(?:[^"\\\n]|\\.)*"|[^\n"][^\n]*)`,
	),
}

// lazyPattern returns a regular expression that is compiled on first use, because most processes never use it.
func lazyPattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// Redact hides what looks like a secret.
func Redact(text string) string {
	for _, p := range secretPatterns {
		text = p().ReplaceAllString(text, hiddenText)
	}
	for _, p := range hashPatterns {
		text = p().ReplaceAllString(text, hiddenText)
	}
	text = redactCommands(redactLinks(tokenPattern().ReplaceAllString(text, hiddenText)))
	text = bearerPattern().ReplaceAllString(text, "${1}"+hiddenText)
	text = secretFieldPattern().ReplaceAllStringFunc(text, func(found string) string {
		parts := secretFieldPattern().FindStringSubmatch(found)
		if strings.HasPrefix(parts[2], hiddenText) {
			return found
		}
		return parts[1] + hiddenText
	})
	for _, p := range namedPatterns {
		text = redactNamed(text, p())
	}
	return text
}

func redactNamed(text string, p *regexp.Regexp) string {
	var out strings.Builder
	begin := 0
	for _, at := range p.FindAllStringSubmatchIndex(text, -1) {
		name, value := text[at[2]:at[3]], text[at[6]:at[7]]
		if !isSecretName(name) || isHarmlessValue(strings.Trim(value, `"'`)) {
			continue
		}
		out.WriteString(text[begin:at[6]])
		if value[0] == '"' {
			out.WriteString(`"` + hiddenText + `"`)
		} else {
			out.WriteString(hiddenText)
		}
		begin = at[7]
	}
	out.WriteString(text[begin:])
	return out.String()
}
