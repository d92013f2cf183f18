#!/bin/sh
# Builds the Java contender into build/contenders/java; its command is build/contenders/java/redisson.
set -eu
cd "$(dirname "$0")"
out=$(cd ../../.. && pwd)/build/contenders/java
mvn -q -B -Dstyle.color=never package
printf '#!/bin/sh\nexec java -cp "%s/classes:%s/lib/*" race.Redisson "$@"\n' "$out" "$out" > "$out/redisson"
chmod +x "$out/redisson"
