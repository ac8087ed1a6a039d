package support

import (
	"slices"
	"strings"
)

var (
	secretWords = []string{
		"password",
		"passwd",
		"passphrase",
		"secret",
		"token",
		"credential",
		"apikey",
		"privatekey",
		"accesskey",
		"authorization",
		"connectionstring",
	}
	secretParts = []string{"key", "keys", "pass", "pwd", "pw", "pin", "dsn", "cookie"}
	// harmlessParts are last parts of names that contain a place or a time, and no secret.
	harmlessParts = []string{
		"file",
		"path",
		"dir",
		"directory",
		"name",
		"namespace",
		"ttl",
		"timeout",
		"duration",
		"expiration",
		"seconds",
	}

	namePartPattern = lazyPattern(`[A-Z]*[a-z0-9]+|[A-Z0-9]+`)
	filePathPattern = lazyPattern(`^/(?:etc|var|run|usr|opt|srv|home|mnt|tmp|secrets?|config|data)/`)
)

// isSecretName reports whether the value of a variable, header or flag with this name must be hidden.
func isSecretName(name string) bool {
	words := namePartPattern().FindAllString(name, -1)
	for i, w := range words {
		words[i] = strings.ToLower(w)
	}
	if len(words) == 0 || slices.Contains(harmlessParts, words[len(words)-1]) {
		return false
	}
	joined := strings.Join(words, "")
	return slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(joined, w) }) ||
		slices.ContainsFunc(words, func(w string) bool { return slices.Contains(secretParts, w) })
}

// isSecretField reports whether an object's field with this name is a secret. "key" is not, because selectors and
// tolerations have such a field.
func isSecretField(name string) bool {
	joined := strings.ToLower(strings.Join(namePartPattern().FindAllString(name, -1), ""))
	return joined == "secret" || slices.ContainsFunc([]string{
		"password", "passwd", "passphrase", "token", "apikey", "privatekey", "accesskey", "secretkey", "clientsecret",
		"credential", "credentials", "clientkeydata",
	}, func(w string) bool { return strings.HasSuffix(joined, w) })
}

// isHarmlessValue reports whether a value is never a secret, whatever its name: a boolean or a file path.
func isHarmlessValue(value string) bool {
	return value == "" || value == "true" || value == "false" || strings.HasPrefix(value, hiddenText) ||
		filePathPattern().MatchString(value)
}
