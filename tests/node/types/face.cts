// The same declarations for CommonJS.
import bandog = require('bandog')

export async function main(): Promise<void> {
  const client: bandog.Client = bandog.connect()
  const held: bandog.Hold = await client.lock('order_lock').acquire()
  try {
    held.check()
  } catch (error) {
    if (error instanceof bandog.LockLost) throw error
  } finally {
    await held.release()
  }
  await using again = await bandog.lock('order_lock').tryAcquire()
  void again
  await client.close()
}
