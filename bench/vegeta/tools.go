//go:build tools

package load

import _ "github.com/tsenart/vegeta/v12"
