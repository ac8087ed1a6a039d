package load

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty/function"

	"clusterctl/hcl/block"
)

//go:embed reference.md
var referenceText string

// Reference returns the reference of the language, docs/language.md. It is reference.md with the blocks and functions
// of the code inserted.
func Reference() string {
	all := Functions(".", time.Time{})
	var list strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name]
		fmt.Fprintf(&list, "| `%s(%s)` | %s |\n", name, strings.Join(parameterNames(f), ", "), functionMeanings[name])
	}
	return strings.NewReplacer("{{blocks}}\n", block.Reference(), "{{functions}}\n",
		list.String()).Replace(referenceText)
}

// FunctionMeaning returns the signature and the description of a function.
func FunctionMeaning(name string) (call, meaning string) {
	f, ok := Functions(".", time.Time{})[name]
	if !ok {
		return "", ""
	}
	return name + "(" + strings.Join(parameterNames(f), ", ") + ")", functionMeanings[name]
}

// FunctionNames returns the sorted names of the functions.
func FunctionNames() []string { return slices.Sorted(maps.Keys(functionMeanings)) }

func parameterNames(f function.Function) (params []string) {
	for _, p := range f.Params() {
		params = append(params, p.Name)
	}
	if v := f.VarParam(); v != nil {
		params = append(params, v.Name+"…")
	}
	return params
}

// functionMeanings has the descriptions of the functions.
var functionMeanings = map[string]string{
	"abs":          "The absolute value of a number.",
	"abspath":      "A path as an absolute path.",
	"alltrue":      "Whether all elements are true.",
	"anytrue":      "Whether any element is true.",
	"base64decode": "Text from base64.",
	"base64encode": "Text as base64.",
	"base64gunzip": "Text from base64 of data that gzip compressed.",
	"base64gzip":   "Text, compressed with gzip, as base64.",
	"base64sha256": "SHA-256 digest of a text, as base64.",
	"base64sha512": "SHA-512 digest of a text, as base64.",
	"basename":     "The last part of a path.",
	"bcrypt":       "A bcrypt hash of a password, with a new salt for each call. The default cost is 10.",
	"can":          "Whether an expression can be evaluated without an error.",
	"ceil":         "The number rounded up to a whole number.",
	"chomp":        "Text without line ends at its end.",
	"chunklist":    "A list split into lists of a size.",
	"cidrhost":     "The address with a number in a network.",
	"cidrnetmask":  "The mask of an IPv4 network.",
	"cidrsubnet":   "A subnet, by the number of additional prefix bits and the number of the subnet.",
	"cidrsubnets":  "Consecutive subnets, by the number of additional prefix bits of each.",
	"coalesce":     "The first argument that is neither null nor an empty text.",
	"coalescelist": "The first list that is not empty.",
	"compact":      "A list without empty texts.",
	"concat":       "Several lists as one.",
	"contains":     "Whether a list contains a value.",
	"csvdecode":    "A list of objects from CSV with a header line.",
	"dirname":      "A path without its last part.",
	"distinct":     "A list without duplicates.",
	"element": "The element of a list at an index. An index past the end starts again at the " +
		"beginning.",
	"endswith":         "Whether a text ends with another.",
	"ephemeralasnull":  "The value itself, because this language has no ephemeral values.",
	"file":             "The content of a text file.",
	"filebase64":       "The content of a file, as base64.",
	"filebase64sha256": "SHA-256 digest of a file, as base64.",
	"filebase64sha512": "SHA-512 digest of a file, as base64.",
	"fileexists":       "Whether a file exists.",
	"filemd5":          "MD5 digest of a file, in hexadecimal.",
	"fileset": "Files of a folder that match a pattern with `*`, `?`, `[a-z]`, `{a,b}`, and " +
		"`**` for any number of folders.",
	"filesha1":     "SHA-1 digest of a file, in hexadecimal.",
	"filesha256":   "SHA-256 digest of a file, in hexadecimal.",
	"filesha512":   "SHA-512 digest of a file, in hexadecimal.",
	"flatten":      "Nested lists as one list.",
	"floor":        "The number rounded down to a whole number.",
	"format":       "Text by a format with %s, %d, %q and other verbs.",
	"formatdate":   "A time of RFC 3339 in a format such as YYYY-MM-DD.",
	"formatlist":   "format for every element of lists.",
	"indent":       "Text with all lines but the first indented.",
	"index":        "The index of a value in a list.",
	"issensitive":  "Whether a value is sensitive.",
	"join":         "The elements as one text, with a separator between them.",
	"jsondecode":   "A value from JSON.",
	"jsonencode":   "A value as JSON.",
	"keys":         "The keys of a map, sorted.",
	"length":       "The number of elements or characters.",
	"log":          "The logarithm of a number to a base.",
	"lookup":       "An element of a map, or a default.",
	"lower":        "Text in lower case.",
	"matchkeys":    "Elements of a list whose counterparts in a second list are in a third list.",
	"max":          "The largest number.",
	"md5":          "MD5 digest of a text, in hexadecimal.",
	"merge":        "Several maps as one. Later maps take precedence.",
	"min":          "The smallest number.",
	"nonsensitive": "A sensitive value, marked as not sensitive.",
	"one":          "The only element of a list, or null if the list is empty.",
	"parseint":     "A whole number from text in a base.",
	"pathexpand":   "A path with ~ replaced by your home folder.",
	"plantimestamp": "The time of the plan, in RFC 3339. A saved plan keeps the time at which it was " +
		"made.",
	"pow":      "A number raised to a power.",
	"range":    "Numbers from a start up to, but not including, an end, by a step.",
	"regex":    "The first match of a regular expression, or its groups if it has any.",
	"regexall": "All matches of a regular expression.",
	"replace": "A text with all occurrences of a text replaced. A text between slashes is a " +
		"regular expression.",
	"reverse": "A list in reverse order.",
	"rsadecrypt": "Decrypts base64 text that was encrypted for an RSA key with PKCS #1 v1.5, by " +
		"the private key in PEM.",
	"sensitive":        "The value, marked as sensitive: neither it nor values made from it are shown.",
	"setintersection":  "The elements that are in all sets.",
	"setproduct":       "All combinations of elements of sets.",
	"setsubtract":      "The elements of the first set that are not in the second.",
	"setunion":         "The elements that are in any of the sets.",
	"sha1":             "SHA-1 digest of a text, in hexadecimal.",
	"sha256":           "SHA-256 digest of a text, in hexadecimal.",
	"sha512":           "SHA-512 digest of a text, in hexadecimal.",
	"signum":           "-1, 0 or 1: the sign of a number.",
	"slice":            "The part of a list from an index up to, but not including, another.",
	"sort":             "A list of texts in order.",
	"split":            "The parts of a text between separators.",
	"startswith":       "Whether a text starts with another.",
	"strcontains":      "Whether a text contains another.",
	"strrev":           "Text in reverse order.",
	"substr":           "A part of a text, by offset and length.",
	"sum":              "The sum of the elements.",
	"templatefile":     "The content of a file, evaluated as a template with variables.",
	"templatestring":   "A text that a reference leads to, evaluated as a template with variables.",
	"textdecodebase64": "Text from base64 of bytes in a character encoding.",
	"textencodebase64": "Text in a character encoding, as base64.",
	"timeadd":          "A time plus a duration.",
	"timecmp":          "-1, 0 or 1: how two times of RFC 3339 compare.",
	"timestamp":        "The time of the run, in RFC 3339. Values made from it change with every run.",
	"title":            "Text with the first letter of each word in upper case.",
	"tobool":           "The value converted to bool.",
	"tolist":           "The value converted to a list.",
	"tomap":            "The value converted to a map.",
	"tonumber":         "The value converted to a number.",
	"toset":            "The value converted to a set.",
	"tostring":         "The value converted to a string.",
	"transpose":        "A map of lists, with keys and elements exchanged.",
	"trim":             "Text without certain characters at both ends.",
	"trimprefix":       "Text without a prefix.",
	"trimspace":        "Text without white space at both ends.",
	"trimsuffix":       "Text without a suffix.",
	"try":              "The first expression that can be evaluated without an error.",
	"type":             "The type of a value, as text.",
	"upper":            "Text in upper case.",
	"urldecode":        "Text with the escapes of URLs decoded.",
	"urlencode":        "Text with the escapes of URLs encoded.",
	"uuid":             "A random UUID, a new one in every run.",
	"uuidv5":           "The UUID of a name in a namespace.",
	"values":           "The values of a map, in the order of its sorted keys.",
	"yamldecode":       "A value from YAML.",
	"yamlencode":       "A value as YAML.",
	"zipmap":           "A map from a list of keys and a list of values.",
}
